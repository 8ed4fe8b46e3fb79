#include "agent/daemon/setup.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "abi/base/hex.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/control/state_file.hpp"
#include "agent/log/log.hpp"

namespace hf::daemon {

namespace {

// As many as a burst of new clients while the gateway restarts (a few ms); the kernel caps it at somaxconn.
constexpr int kBacklog = 1024;

std::string read_line(const char* path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

core::Kind kind_of(config::Slot slot) {
    switch (slot) {
        case config::Slot::Gateway:
            return core::Kind::Gateway;
        case config::Slot::Storage:
            return core::Kind::Storage;
        case config::Slot::Runtime:
            return core::Kind::Runtime;
        case config::Slot::Placement:
            return core::Kind::Placement;
        case config::Slot::Drain:
            return core::Kind::Drain;
    }
    return core::Kind::None;
}

core::Time ns(config::Millis millis) {
    return std::int64_t{millis.count()} * core::kMs;
}

// Where the first socket for clients, or the one for other nodes, listens; empty when there is none.
std::string address_of(const std::vector<Listener>& listeners, bool cluster) {
    for (const Listener& listener : listeners)
        if (listener.cluster == cluster) return listener.address;
    return {};
}

void fill_lease(const config::Config& config,
                const std::vector<Listener>& listeners,
                core::Config& out) {
    const config::LeaseConfig& lease = config.node.lease;
    out.lease.ttl = ns(lease.ttl);
    if (lease.none()) return;
    out.lease.renew = ns(lease.renew);
    out.lease.grace = ns(lease.grace);
    out.lease.poll = ns(lease.poll);
    const std::string cluster = address_of(listeners, true);
    const std::string& told = config.node.advertise;
    // Clients and other nodes come to one address, unless there is one for other nodes alone.
    if (cluster.empty() && !told.empty()) out.http_address = told;
    out.peer_address = !told.empty() ? told : cluster.empty() ? out.http_address : cluster;
}

Result<Listener> open_listener(const config::Endpoint& endpoint, std::size_t number, bool cluster) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(endpoint.port);
    if (const int rc = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found); rc != 0)
        return fail(Code::Invalid,
                    "cannot listen on " + endpoint.text() + ": " + ::gai_strerror(rc));
    UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    int failed = fd.valid() ? 0 : errno;
    if (failed == 0 && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        failed = errno;
    if (failed == 0 && ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0) failed = errno;
    if (failed == 0 && ::listen(fd.get(), kBacklog) != 0) failed = errno;
    ::freeaddrinfo(found);
    if (failed == EADDRINUSE)
        return fail(Code::Unavailable,
                    "cannot listen on " + endpoint.text() +
                        ": another process does; name another address as " +
                        (cluster ? "plugin.gateway.cluster_listen"
                                 : "plugin.gateway.listen or HOLDFAST_LISTEN"));
    if (failed != 0) return fail_errno(failed, "cannot listen on " + endpoint.text());
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    // SAFETY: sockaddr_storage is made to be seen as the sockaddr of any family.
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
        return fail_errno(errno, "cannot read the address of " + endpoint.text());
    std::uint16_t actual = 0;
    // SAFETY: as above, after the family was looked at.
    if (bound.ss_family == AF_INET)
        actual = ntohs(reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
    if (bound.ss_family == AF_INET6)
        actual = ntohs(reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
    config::Endpoint told = endpoint;
    told.port = actual;
    return Listener{"listener" + std::to_string(number), told.text(), std::move(fd), cluster};
}

}  // namespace

std::uint64_t random_word() {
    std::uint64_t word = 0;
    // getrandom of 8 bytes never fails nor is short once the pool is up.
    while (::getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
    }
    return word;
}

Result<Paths> find_paths(const config::Config& config) {
    std::error_code error;
    Paths paths;
    paths.bin = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    if (error) return fail_errno(error.value(), "cannot find the directory of this executable");
    paths.data = config.node.data;
    for (const std::filesystem::path& needed : {paths.jail(), paths.builder()}) {
        if (!std::filesystem::exists(needed, error))
            return fail(Code::Unavailable,
                        "the helper binary " + needed.string() + " is missing beside holdfastd");
    }
    for (const auto& dir : {paths.data / "state", paths.modules(), paths.dumps()}) {
        std::filesystem::create_directories(dir, error);
        if (error) return fail_errno(error.value(), "cannot create " + dir.string());
    }
    return paths;
}

Result<std::vector<Listener>> open_listeners(const config::Config& config) {
    std::vector<Listener> out;
    const config::PluginConfig* gateway = config.plugin(config::Slot::Gateway);
    if (gateway == nullptr) return out;
    const auto add = [&](const config::Endpoint& endpoint, bool cluster) -> Result<void> {
        HF_ASSIGN(Listener listener, open_listener(endpoint, out.size(), cluster));
        out.push_back(std::move(listener));
        return {};
    };
    for (const config::Endpoint& endpoint : gateway->listen) {
        HF_TRY(add(endpoint, false));
        // A gateway knows it by its place.
        if (out.size() == 1 && gateway->cluster_listen) HF_TRY(add(*gateway->cluster_listen, true));
    }
    return out;
}

Result<core::Build> build_of(const config::PluginConfig& plugin,
                             const Paths& paths,
                             const Builds& builds) {
    core::Build build;
    build.use = plugin.use;
    build.binary =
        plugin.binary.empty() ? (paths.bin / plugin.use).string() : plugin.binary.string();
    HF_ASSIGN(build.binary_hash, builds.keep(build.binary));
    build.policy = plugin.policy;
    build.settings = plugin.settings;
    return build;
}

std::filesystem::path store_dir(const config::Config& config) {
    const config::PluginConfig* storage = config.plugin(config::Slot::Storage);
    if (storage == nullptr || storage->use != "storage-local") return {};
    return std::filesystem::path(storage->setting("path"));
}

core::Limits core_limits(const config::Config& config) {
    core::Limits limits;
    limits.mailbox_events = config.limits.mailbox_events;
    limits.mailbox_bytes = config.limits.mailbox_bytes;
    limits.accepted_events = config.limits.accepted_events;
    limits.accepted_bytes = config.limits.accepted_bytes;
    limits.units_max = config.limits.units_max;
    limits.journal_events = config.limits.journal_events;
    limits.journal_bytes = config.limits.journal_bytes;
    limits.journal_events_per_actor = config.limits.journal_events_per_actor;
    limits.bulk_bytes = config.limits.bulk_bytes;
    limits.run_ahead_events = config.limits.run_ahead_events;
    limits.run_ahead_bytes = config.limits.run_ahead_bytes;
    limits.checkpoint_entries = config.limits.checkpoint_entries;
    limits.checkpoint_bytes = config.limits.checkpoint_bytes;
    limits.hold_idle = ns(config.limits.hold_idle);
    limits.ready_timeout = ns(config.limits.ready_timeout);
    limits.shed_deadline = ns(config.limits.shed_deadline);
    limits.stall_grace = ns(config.limits.stall_grace);
    limits.place_deadline = ns(config.limits.place_deadline);
    limits.swap_answers = config.swap.answers;
    limits.swap_window = ns(config.swap.window);
    // Twice: one that ends after a swap still has its own.
    const config::PluginConfig* gateway = config.plugin(config::Slot::Gateway);
    if (gateway != nullptr && gateway->use == "gateway-http")
        limits.sockets_max = 2 * std::stoul(std::string(gateway->setting("sockets_max")));
    // Other runtimes say themselves when they are full.
    const config::PluginConfig* runtime = config.plugin(config::Slot::Runtime);
    if (runtime != nullptr && runtime->use == "runtime-wasm")
        limits.resident_units_max = static_cast<std::uint32_t>(
            std::stoul(std::string(runtime->setting("resident_units_max"))));
    if (const auto* placement = config.plugin(config::Slot::Placement); placement != nullptr) {
        limits.place_required = placement->required;
        if (placement->deadline.count() != 0) limits.place_deadline = ns(placement->deadline);
    }
    // Slow is not dead: well above the deadline, whoever set it.
    limits.policy_stall = std::max(limits.policy_stall, 10 * limits.place_deadline);
    return limits;
}

Result<core::Config> core_config(const config::Config& config,
                                 const Paths& paths,
                                 const Builds& builds,
                                 const std::vector<Listener>& listeners,
                                 const std::string& instance_id,
                                 bool leftovers_reaped) {
    core::Config out;
    out.node_id = config.node.id;
    out.instance_id = instance_id;
    out.http_address = address_of(listeners, false);
    fill_lease(config, listeners, out);
    out.machine = read_line("/etc/machine-id");
    out.boot = read_line("/proc/sys/kernel/random/boot_id");
    out.tenant = config.node.tenant;
    out.app = config.node.app;
    out.restart_intensity = config.restart.intensity;
    out.leftovers_reaped = leftovers_reaped;
    out.seed_hi = random_word();
    out.seed_lo = random_word();

    out.limits = core_limits(config);
    for (const auto& [slot, plugin] : config.plugins) {
        core::SlotSpec spec;
        spec.name = std::string(config::slot_name(slot));
        spec.kind = kind_of(slot);
        spec.instances = plugin.instances;
        HF_ASSIGN(spec.build, build_of(plugin, paths, builds));
        out.slots.push_back(std::move(spec));
    }
    return out;
}

Result<modules::MacKey> module_key(const Paths& paths) {
    const control::StateFile file(paths.state("module_key.json"));
    nlohmann::json document;
    std::string note;
    HF_ASSIGN(const control::StateFile::Found found,
              file.load(document, note, [](const nlohmann::json& value) -> Result<void> {
                  const auto key =
                      value.is_object() ? value.value("key", nlohmann::json()) : nlohmann::json();
                  if (!key.is_string() || !modules::is_sha256(key.get<std::string>()))
                      return fail(Code::Corrupt, "it has no `key` of 64 hexadecimal digits");
                  return {};
              }));
    if (!note.empty()) log::warn("daemon", "compiled modules are made anew", {{"why", note}});
    std::string digits;
    if (found == control::StateFile::Found::Good) {
        digits = document["key"].get<std::string>();
    } else {
        for (int i = 0; i < 4; ++i) digits += hex(random_word());
        HF_TRY(file.save({{"key", digits}}));
    }
    modules::MacKey key{};
    for (std::size_t i = 0; i < key.size(); ++i)
        key[i] = static_cast<std::uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
    return key;
}

Result<std::string> instance_id(const Paths& paths) {
    const control::StateFile file(paths.state("instance.json"));
    nlohmann::json document;
    std::string note;
    HF_ASSIGN(const control::StateFile::Found found,
              file.load(document, note, [](const nlohmann::json& value) -> Result<void> {
                  if (!value.is_object() || !value.value("instance", nlohmann::json()).is_string())
                      return fail(Code::Corrupt, "it has no text `instance`");
                  return {};
              }));
    if (found == control::StateFile::Found::Good) return document["instance"].get<std::string>();
    const std::string fresh = hex(random_word()) + hex(random_word());
    HF_TRY(file.save({{"instance", fresh}}));
    return fresh;
}

}  // namespace hf::daemon
