// Where this CLI runs: what the environment and the place of its executable say about which node is meant, and the programs that
// lie beside it.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::cli {

struct Surroundings {
    std::filesystem::path executable_dir;      // holdfastd and holdfast-wasm-build are beside us
    std::optional<std::string> data_variable;  // HOLDFAST_DATA
    std::filesystem::path system_data = "/var/lib/holdfast";
    std::filesystem::path system_config = "/etc/holdfast/agent.toml";
    std::filesystem::path working_dir;

    // Of this process.
    static Surroundings of_process();
};

// The data directory that is meant: `node` (from --node), else HOLDFAST_DATA, else the one of `./dev run` in the source
// tree this executable was built in when a node listens there, else the system's.
[[nodiscard]] std::filesystem::path data_directory(const Surroundings& around,
                                                   const std::string& node);

// The places data_directory looks at without --node, for a person whose node is not found.
[[nodiscard]] std::string places_tried(const Surroundings& around);

// The file that is meant when none is named: agent.toml in the working directory, else the system's.
[[nodiscard]] std::filesystem::path config_file(const Surroundings& around,
                                                const std::string& file);

// What a program beside us said.
struct Said {
    int code = 0;
    std::string out;
    std::string err;
};
// A module's imports and exports or a whole configuration are a few KiB; an error is a sentence.
inline constexpr std::size_t kSaidBytesMax = 1U << 20U;

// Runs a program that lies beside this executable and hands back what it wrote, at most kSaidBytesMax of each stream.
// NotFound: it is not there; Timeout: it was ended because it took longer; Io: it could not be started or ended by a signal.
[[nodiscard]] Result<Said> hear_beside(const Surroundings& around,
                                       const std::string& program,
                                       const std::vector<std::string>& arguments,
                                       std::chrono::milliseconds timeout);

}  // namespace hf::cli
