// From agent.toml to what the core and the jail are told: slots, builds, listening sockets, modules, locks, leftovers.
// Everything here happens once, before the loop serves, and refuses the start with one sentence when it cannot be done.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/config/config.hpp"
#include "agent/core/types.hpp"
#include "agent/daemon/builds.hpp"
#include "agent/modules/cache.hpp"

namespace hf::daemon {

// Where the sibling binaries are: the directory of this executable.
struct Paths {
    std::filesystem::path bin;
    std::filesystem::path data;
    [[nodiscard]] std::filesystem::path jail() const { return bin / "holdfast-jail"; }
    [[nodiscard]] std::filesystem::path builder() const { return bin / "holdfast-wasm-build"; }
    [[nodiscard]] std::filesystem::path control_socket() const {
        return data / "run" / "control.sock";
    }
    [[nodiscard]] std::filesystem::path address_file() const { return data / "run" / "address"; }
    [[nodiscard]] std::filesystem::path state(const char* name) const {
        return data / "state" / name;
    }
    [[nodiscard]] std::filesystem::path modules() const { return data / "modules"; }
    [[nodiscard]] std::filesystem::path builds() const { return data / "builds"; }
    [[nodiscard]] std::filesystem::path journal() const { return data / "journal"; }
    [[nodiscard]] std::filesystem::path dumps() const { return data / "dumps"; }
};

// From the kernel's generator.
[[nodiscard]] std::uint64_t random_word();

Result<Paths> find_paths(const config::Config& config);

struct Listener {
    std::string name;     // "listener0"
    std::string address;  // "127.0.0.1:43121", the port that was given
    UniqueFd fd;
    bool cluster = false;  // for other nodes alone
};
// Binds and listens, so that the port answers from now on and through every restart of a gateway. The one for other nodes,
// if there is one, is the second.
Result<std::vector<Listener>> open_listeners(const config::Config& config);

// The build a slot starts with, its content kept.
Result<core::Build> build_of(const config::PluginConfig& plugin,
                             const Paths& paths,
                             const Builds& builds);

// The host directory of storage-local's environment; empty for other storage plugins.
[[nodiscard]] std::filesystem::path store_dir(const config::Config& config);

// The parts of it that may change while the node runs.
[[nodiscard]] core::Limits core_limits(const config::Config& config);

Result<core::Config> core_config(const config::Config& config,
                                 const Paths& paths,
                                 const Builds& builds,
                                 const std::vector<Listener>& listeners,
                                 const std::string& instance_id,
                                 bool leftovers_reaped);

// The key of the modules' cache: random, made once, readable by this user alone. A damaged one is set aside, and with a
// fresh one every module is compiled anew.
Result<modules::MacKey> module_key(const Paths& paths);

// The data directory's own random id, made once.
Result<std::string> instance_id(const Paths& paths);

}  // namespace hf::daemon
