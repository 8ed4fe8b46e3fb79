// The supervisor's process: feeds the core from links, processes, timers and operators, and does what it says.
// Parses no network bytes and decides nothing about units; the core decides, this carries.
//
// When an instance dies: what it had published is drained with all checks, the core is told, then the link is freed.
// When this process dies: every instance dies with it (pdeathsig, pid namespaces); the next start kills what is left.
#pragma once

#include <uv.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/config/config.hpp"
#include "agent/control/control.hpp"
#include "agent/control/data_lock.hpp"
#include "agent/core/core.hpp"
#include "agent/daemon/builds.hpp"
#include "agent/daemon/class_settings.hpp"
#include "agent/daemon/deployments.hpp"
#include "agent/daemon/setup.hpp"
#include "agent/daemon/slept.hpp"
#include "agent/log/log.hpp"
#include "agent/loop/loop.hpp"
#include "agent/metrics/metrics.hpp"
#include "agent/modules/cache.hpp"
#include "agent/port/channel.hpp"
#include "agent/process/leftovers.hpp"
#include "agent/process/spawner.hpp"
#include "agent/records/records.hpp"
#include "agent/store/journal.hpp"

namespace hf::daemon {

class Daemon {
public:
    // Takes the locks, opens the listeners, kills leftovers. `config_file` is for messages.
    static Result<std::unique_ptr<Daemon>> create(config::Config config);
    ~Daemon();
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;

    // Builds the modules, serves until a signal or a fatal trouble, and ends everything. The process's exit code.
    int run();

private:
    struct Link {
        Handle handle;
        core::Kind kind = core::Kind::None;
        std::string slot;
        std::uint32_t seat = 0;
        core::Build build;
        std::unique_ptr<port::Channel> channel;
        std::unique_ptr<process::Process> process;
        std::unique_ptr<loop::Poll> bell;
        std::string violation;   // why nothing more is read from it
        std::string last_words;  // its own Fault message
        core::Time spawned = 0;
        std::map<std::string, std::uint64_t> counters;
        std::vector<pid_t> remembered;  // in the file of running processes
        bool room_asked = false;        // the core waits until nothing waits for its ring
    };

    Daemon(config::Config config, Paths paths, control::DataLock lock);
    Result<void> prepare();

    // One module for the jailed builder; `done` hears of it once, at once when the builder could not be started.
    struct BuildJob {
        std::string class_name;
        std::string wasm_sha256;  // its bytes lie in the cache
        std::string shown;        // where they come from, for people
        std::function<void(Result<modules::Entry>)> done;
        bool again = false;  // what the cache had was not ours and was set aside
    };

    // builder.cpp
    Result<void> choose_modules();
    void build_next_module();
    void start_build(BuildJob job);
    void build_ended(const process::ExitReport& report);
    [[nodiscard]] std::string module_shown(const std::string& class_name,
                                           const std::string& wasm) const;

    // deploy.cpp
    void deploy(const nlohmann::json& request, const control::Responder& responder);
    void deploy_module(const std::string& wasm);
    void deploy_table(ModuleTable table);
    void deploy_ended(bool ok, const std::string& text);
    // Swaps the runtime to another table of modules, or to the same with other limits; `done` hears how it ended.
    void swap_modules(ModuleTable table,
                      std::optional<control::Responder> responder,
                      std::function<void(const core::CommandDone&)> done);
    [[nodiscard]] const core::Build* runtime_build() const;
    [[nodiscard]] const RuntimeTable& table_named(const std::string& id) const;
    [[nodiscard]] const RuntimeTable& served_table() const;
    [[nodiscard]] const ModuleTable& served() const { return served_table().modules; }
    [[nodiscard]] Result<void> note_modules();
    void trim_modules();
    [[nodiscard]] const std::string* why_busy() const;
    [[nodiscard]] std::vector<core::ClassSpec> class_specs(const config::Config& config) const;
    [[nodiscard]] nlohmann::json classes_json() const;

    // reload.cpp
    void reload(std::optional<control::Responder> responder);
    [[nodiscard]] Result<void> compare_config();
    [[nodiscard]] Result<void> plan_policy(config::Slot which);
    void reload_next();
    void take_policies_back(const std::string& why);
    void swap_policy(core::SwapCommand command, std::function<void(const core::CommandDone&)> done);
    void reload_ended(bool ok, const std::string& text);
    void apply_reload();
    [[nodiscard]] static log::Options log_options(const config::Config& config, const Paths& paths);

    // links.cpp
    void spawn(const core::Spawn& action);
    void configure(Link& link);
    void tell_clock();
    bool drain(Link& link);
    bool tell_rooms();
    void received(Link& link, const port::Received& record);
    void exited(Handle handle, const process::ExitReport& report);
    void dump(const Link& link, const std::string& why);
    // In the file by which the next start finds what a kill -9 of this process may leave.
    void remember_running(Link& link, pid_t pid);
    void forget_running(const Link& link);
    [[nodiscard]] process::SpawnSpec spec_of(const core::Spawn& action, const Link& link) const;
    [[nodiscard]] std::string full_name(const Link& link) const;

    void step(core::Event event);
    void too_large(Handle to);
    void not_asked(const core::PeerCall& call, port::Sent why);
    void act(core::Action& action);
    void before_block();
    void watch_doors();
    [[nodiscard]] bool clients_wait() const;
    [[nodiscard]] Link* link_of(Handle handle);
    template <class T>
    void send(const T& action);

    // operator.cpp
    void register_operations();
    void swap(const nlohmann::json& request, const control::Responder& responder);
    void command_done(const core::CommandDone& action);
    void forget_unused_builds();
    [[nodiscard]] nlohmann::json status_json() const;
    [[nodiscard]] nlohmann::json plugins_json() const;

    // cluster_page.cpp
    [[nodiscard]] nlohmann::json lease_json() const;
    [[nodiscard]] nlohmann::json cluster_json() const;

    // actor_pages.cpp
    void show_actors(const nlohmann::json& request, const control::Responder& responder) const;
    [[nodiscard]] nlohmann::json actor_json(const core::Unit& unit) const;
    void show_actor(const nlohmann::json& request, const control::Responder& responder) const;
    void show_letters(const control::Responder& responder) const;
    [[nodiscard]] nlohmann::json journal_json() const;

    // pages.cpp
    void answer_query(Link& link, const port::Received& record);
    [[nodiscard]] std::string metrics_page();

    void announce();
    void begin_stop(const std::string& reason);
    void finish(int code);

    config::Config config_;
    Paths paths_;
    control::DataLock lock_;
    Builds builds_;
    std::unique_ptr<control::StoreLock> store_lock_;
    std::vector<Listener> listeners_;
    process::InstanceFile running_;
    uv_loop_t loop_{};
    std::unique_ptr<core::Core> core_;
    std::unique_ptr<store::Journal> journal_;
    port::SegmentPool pool_;
    std::unique_ptr<process::Spawner> spawner_;
    std::unique_ptr<control::Server> control_;
    std::unique_ptr<loop::Timer> timer_;
    std::unique_ptr<loop::ClockWatch> clock_watch_;
    std::unique_ptr<loop::BeforeBlock> before_block_;
    std::vector<std::unique_ptr<loop::Poll>> doors_;  // of listeners_, while a knock would be news
    bool knocked_ = false;  // they are over, and go before the loop blocks
    std::vector<std::unique_ptr<loop::Signal>> signals_;
    std::map<std::uint64_t, std::unique_ptr<Link>> links_;  // by generation
    std::vector<std::unique_ptr<Link>> dead_;               // freed at the end of the loop turn
    std::vector<port::Channel*> channels_;                  // of links_, for the wake policy
    std::vector<core::Event> pending_events_;               // raised while a step was running
    core::Actions actions_;            // of the running step; kept for its memory, as is turn_
    std::vector<std::uint64_t> turn_;  // generations to be drained in one round
    bool stepping_ = false;
    SleptWatch slept_;
    struct Command {
        std::optional<control::Responder> responder;
        std::string slot;
        // For a command of our own: hears of the end in place of the responder.
        std::function<void(const core::CommandDone&)> done = {};
    };
    std::map<std::uint64_t, Command> commands_;
    std::uint64_t last_command_ = 0;
    struct LastExit {
        std::uint64_t generation = 0;
        std::string summary;
        std::string stderr_tail;
    };
    std::map<std::string, LastExit> last_exit_;  // by slot/seat
    metrics::Registry registry_;

    // Modules. A runtime's build names one of the tables; "" is the one of this start.
    std::unique_ptr<modules::Cache> cache_;
    Deployments deployments_;
    std::map<std::string, std::string> file_wasm_;  // by class: sha256 of what agent.toml names
    std::vector<std::pair<std::string, std::string>> to_build_;  // class and sha256, at the start
    std::map<std::string, RuntimeTable> tables_;
    RuntimeTable noted_;  // what runs as far as deployments_ and the core know
    std::optional<BuildJob> building_;
    std::unique_ptr<process::Process> builder_;
    UniqueFd builder_output_;
    bool started_serving_ = false;  // every module of the start is built
    // One deploy or reload at a time.
    struct Deploy {
        control::Responder responder;
        std::string class_name;
        std::string before;  // sha256 of what the class ran; empty: there was no such class
        std::string after;   // and of what it is to run; empty: it is taken away
        std::string source;
        bool reset = false;
        core::Time since = 0;
    };
    std::optional<Deploy> deploy_;
    struct Changed {
        std::string key;
        std::optional<std::string> was;  // absent: the file did not have it, or has it no more
        std::optional<std::string> is;
    };
    // A policy with what the file says of it now. `swap`: it does not run so yet.
    struct PolicyChange {
        std::string slot;
        core::Build build;
        bool swap = false;
        core::Build before = {};
        std::optional<core::Build> previous = std::nullopt;  // what a roll-back would go to
    };
    struct Reload {
        std::optional<control::Responder> responder;
        config::Config config;
        std::vector<Changed> changed = {};
        std::vector<PolicyChange> policies = {};
        std::size_t policies_done = 0;  // of them, those that run as the file says
        bool with_runtime = false;      // it runs under other limits than the file's
    };
    std::optional<Reload> reload_;
    struct LastReload {
        bool ok = false;
        std::string text;
        core::Time at = 0;
    };
    std::optional<LastReload> last_reload_;

    bool announced_ = false;
    bool stop_asked_ = false;
    bool finished_ = false;
    int exit_code_ = 0;
    core::Time started_ = 0;
};

}  // namespace hf::daemon
