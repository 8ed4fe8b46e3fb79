#include "agent/daemon/daemon.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "agent/control/state_file.hpp"
#include "agent/daemon/handed_files.hpp"
#include "agent/daemon/memory_room.hpp"
#include "agent/log/log.hpp"
#include "agent/port/translate.hpp"

namespace hf::daemon {

namespace {
// Records taken from one link before the others get their turn.
constexpr std::size_t kDrainBudget = 256;
// Rounds of "records came while we were about to block" before timers and new descriptors get theirs.
constexpr int kRoundsBeforePoll = 64;

log::Level level_of(core::NoteLevel level) {
    switch (level) {
        case core::NoteLevel::Debug:
            return log::Level::Debug;
        case core::NoteLevel::Info:
            return log::Level::Info;
        case core::NoteLevel::Warn:
            return log::Level::Warn;
        case core::NoteLevel::Error:
            break;
    }
    return log::Level::Error;
}

core::BadBuilds load_bad_builds(const Paths& paths) {
    core::BadBuilds out;
    const control::StateFile file(paths.state("bad_builds.json"));
    nlohmann::json document;
    std::string note;
    const auto found = file.load(document, note, [](const nlohmann::json& value) -> Result<void> {
        if (!value.is_object()) return fail(Code::Corrupt, "it is no object");
        for (const auto& [key, bad] : value.items()) {
            for (const char* part : {"plugin", "build", "why"}) {
                if (!bad.is_object() || !bad.value(part, nlohmann::json()).is_string())
                    return fail(Code::Corrupt,
                                "what is said of " + key + " has no text `" + part + "`");
            }
        }
        return {};
    });
    if (!found) {
        log::error(
            "daemon", "the memory of bad builds cannot be read", {{"why", found.error().message}});
    } else if (*found == control::StateFile::Found::Good) {
        for (const auto& [key, bad] : document.items())
            out[key] = {bad["plugin"].get<std::string>(),
                        bad["build"].get<std::string>(),
                        bad["why"].get<std::string>()};
    } else if (*found == control::StateFile::Found::SetAside) {
        log::warn("daemon", "the memory of bad builds was set aside", {{"why", note}});
    }
    return out;
}
}  // namespace

Daemon::Daemon(config::Config config, Paths paths, control::DataLock lock)
    : config_(std::move(config)),
      paths_(std::move(paths)),
      lock_(std::move(lock)),
      builds_(paths_.builds()),
      running_(paths_.state("instances")),
      deployments_(paths_.state("deployed.json")),
      started_(monotonic_ns()) {
    HF_CHECK(uv_loop_init(&loop_) == 0, "a loop can always be made");
}

Result<std::unique_ptr<Daemon>> Daemon::create(config::Config config) {
    HF_TRY(control::prepare_data(config.node.data));
    HF_ASSIGN(control::DataLock lock, control::DataLock::acquire(config.node.data));
    HF_ASSIGN(Paths paths, find_paths(config));
    std::unique_ptr<Daemon> daemon(
        new Daemon(std::move(config), std::move(paths), std::move(lock)));
    HF_TRY(daemon->prepare());
    return daemon;
}

Result<void> Daemon::prepare() {
    HF_TRY(log::init(log_options(config_, paths_)));

    // Only with the data directory locked: what an earlier incarnation left must be gone before the store is touched.
    HF_ASSIGN(const process::LeftoverReport leftovers,
              process::kill_leftovers(paths_.state("instances")));
    for (const std::string& name : leftovers.killed)
        log::warn("daemon", "a leftover process was ended", {{"process", name}});
    for (const std::string& name : leftovers.survived)
        log::error("daemon", "a leftover process lives on", {{"process", name}});
    for (const std::string& sentence : leftovers.problems) log::warn("daemon", sentence);

    if (const auto dir = store_dir(config_); !dir.empty()) {
        std::error_code error;
        std::filesystem::create_directories(dir, error);
        if (error)
            return fail_errno(error.value(), "cannot create the store's directory " + dir.string());
        HF_ASSIGN(control::StoreLock store,
                  config_.node.lease.none() ? control::StoreLock::exclusive(dir)
                                            : control::StoreLock::shared(dir));
        store_lock_ = std::make_unique<control::StoreLock>(std::move(store));
    }
    if (const auto* gateway = config_.plugin(config::Slot::Gateway); gateway != nullptr) {
        if (const std::string secret(gateway->setting("peer_secret_file")); !secret.empty())
            HF_TRY(check_peer_secret(secret));
    }
    HF_ASSIGN(const std::string instance, instance_id(paths_));
    HF_ASSIGN(listeners_, open_listeners(config_));
    HF_ASSIGN(core::Config core_settings,
              core_config(config_, paths_, builds_, listeners_, instance, leftovers.reaped()));
    HF_TRY(enough_memory(core_settings, memory_room()));
    core_ = std::make_unique<core::Core>(
        std::move(core_settings), records::codec(), load_bad_builds(paths_));
    forget_unused_builds();
    HF_ASSIGN(journal_,
              store::Journal::open(
                  &loop_,
                  paths_.journal(),
                  config_.limits.journal_bytes,
                  [this](core::Event answer) { step(std::move(answer)); },
                  [](std::size_t letters, const std::string& why) {
                      log::error("messages",
                                 "what was given up could not be kept as a letter",
                                 {{"letters", letters}, {"why", why}});
                  }));

    process::Spawner::Options spawn_options;
    spawn_options.jail_binary = paths_.jail();
    spawn_options.uid_base = config_.jail.uid_base;
    // The data directory is locked: nobody else uses this name. Enough of it to tell the nodes of one machine apart.
    spawn_options.cgroup = "holdfast-" + instance.substr(0, 12);
    HF_ASSIGN(spawner_,
              process::Spawner::create(
                  &loop_,
                  spawn_options,
                  [](const std::string& name, const std::string& line, std::uint64_t dropped) {
                      log::plugin_line(log::Level::Info, name, line, dropped);
                  }));
    HF_ASSIGN(control_, control::Server::listen(&loop_, paths_.control_socket()));
    register_operations();

    timer_ = std::make_unique<loop::Timer>(&loop_, [this] { step(core::Tick{}); });
    clock_watch_ = std::make_unique<loop::ClockWatch>(&loop_, [this] { tell_clock(); });
    before_block_ = std::make_unique<loop::BeforeBlock>(&loop_, [this] { before_block(); });
    for (const int number : {SIGTERM, SIGINT}) {
        signals_.push_back(std::make_unique<loop::Signal>(&loop_, number, [this, number] {
            if (stop_asked_) return finish(128 + number);
            begin_stop(number == SIGINT ? "interrupted" : "terminated");
        }));
    }
    signals_.push_back(
        std::make_unique<loop::Signal>(&loop_, SIGHUP, [this] { reload(std::nullopt); }));
    return choose_modules();
}

Daemon::~Daemon() {
    links_.clear();
    dead_.clear();
    builder_.reset();
    journal_.reset();
    control_.reset();
    spawner_.reset();
    signals_.clear();
    clock_watch_.reset();
    doors_.clear();
    before_block_.reset();
    timer_.reset();
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
}

int Daemon::run() {
    build_next_module();
    while (!finished_) uv_run(&loop_, UV_RUN_ONCE);
    control_->close();
    std::error_code error;
    std::filesystem::remove(paths_.address_file(), error);
    log::flush_folds();
    return exit_code_;
}

void Daemon::begin_stop(const std::string& reason) {
    stop_asked_ = true;
    log::info("daemon", "stopping", {{"reason", reason}});
    if (links_.empty()) return finish(0);
    step(core::StopNode{reason});
}

void Daemon::finish(int code) {
    finished_ = true;
    exit_code_ = code;
    for (auto& [generation, link] : links_) {
        if (link->process) link->process->kill_now();
    }
}

Daemon::Link* Daemon::link_of(Handle handle) {
    const auto it = links_.find(handle.generation);
    return it == links_.end() ? nullptr : it->second.get();
}

// One event in, its actions out; events that actions raise are handled after them, never inside.
void Daemon::step(core::Event event) {
    pending_events_.push_back(std::move(event));
    if (stepping_) return;
    stepping_ = true;
    for (std::size_t i = 0; i < pending_events_.size(); ++i) {
        actions_.clear();
        // A lease may have run out while the host was suspended: the core must know before it does anything else.
        if (!slept_.told() || !config_.node.lease.none()) {
            const std::int64_t boottime = boottime_ns();
            const core::Time now = monotonic_ns();
            if (const auto slept = slept_.look(boottime, now))
                core_->step(core::SleptIs{*slept}, now, actions_);
        }
        core_->step(std::move(pending_events_[i]), monotonic_ns(), actions_);
        for (core::Action& action : actions_) act(action);
    }
    pending_events_.clear();
    stepping_ = false;
}

// The bounds of payload, entry, name and text add up to less than a record: whoever sees this line found a sum of ours that
// is wrong. A write is refused; another request stays unanswered until its deadline or the watchdog ends it.
void Daemon::too_large(Handle to) {
    const Link* link = link_of(to);
    log::error("daemon",
               "a message of this node is larger than a record and was not sent",
               {{"plugin", link == nullptr ? "" : full_name(*link)}});
}

// What other nodes are asked is bounded by what their callers may have open, not by one gateway's queue: a full one is
// told to the caller, who may come again.
void Daemon::not_asked(const core::PeerCall& call, port::Sent why) {
    core::PeerRepliedIn answer;
    answer.from = call.to;
    answer.op = call.op;
    answer.outcome = core::PeerOutcome::NotSent;
    answer.reply.reason = core::ReplyReason::Unavailable;
    answer.reply.text = why == port::Sent::Busy ? "too much waits for other nodes already"
                        : why == port::Sent::NoFile
                            ? "the supervisor has no memory or no descriptor left for it"
                            : "the request is larger than a record";
    if (why == port::Sent::TooLarge) too_large(call.to);
    step(std::move(answer));
}

template <class T>
void Daemon::send(const T& action) {
    Link* link = link_of(action.to);
    if (link == nullptr || !link->violation.empty())
        return;  // gone: the core hears of it and decides again
    port::Sent sent = port::Sent::Now;
    if constexpr (std::is_same_v<T, core::Deliver>) {
        sent = port::send(*link->channel, action, wall_ms());
    } else if constexpr (std::is_same_v<T, core::Activate>) {
        sent = port::send(*link->channel, action, config_.node.tenant);
    } else {
        sent = port::send(*link->channel, action);
    }
    if constexpr (std::is_same_v<T, core::PeerCall>) {
        if (sent != port::Sent::Now && sent != port::Sent::Queued) not_asked(action, sent);
        return;
    }
    // The core bounds what it keeps open per instance below the channel's queue, so a full one is an instance that does
    // not read.
    if (sent == port::Sent::Busy) step(core::Violated{action.to, "does not read its queue"});
    if (sent != port::Sent::TooLarge && sent != port::Sent::NoFile) return;
    const bool no_file = sent == port::Sent::NoFile;
    [[maybe_unused]] const char* const why =
        no_file ? "the supervisor has no memory or no descriptor left for it"
                : "the request is larger than a record";
    if (!no_file) too_large(action.to);
    // It was never sent, so nothing is uncertain about it.
    if constexpr (std::is_same_v<T, core::StoreRequest>) {
        core::StoreAnswer answer;
        answer.from = action.to;
        answer.op = action.op;
        answer.outcome = core::Outcome::Refused;
        answer.reason = why;
        step(std::move(answer));
    }
    if constexpr (std::is_same_v<T, core::Activate>)
        step(core::ActivatedIn{
            action.to, action.op, action.activation, core::ActivateStatus::Failed, why});
}

namespace {
template <class... Fs>
struct Overloaded : Fs... {
    using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;
}  // namespace

void Daemon::act(core::Action& action) {
    std::visit(
        Overloaded{
            [this](const core::ReplyOut& a) { send(a); },
            [this](const core::Deliver& a) { send(a); },
            [this](const core::StoreRequest& a) { send(a); },
            [this](const core::Activate& a) { send(a); },
            [this](const core::Resume& a) { send(a); },
            [this](const core::SocketTaken& a) { send(a); },
            [this](const core::SocketSend& a) { send(a); },
            [this](const core::CloseSocket& a) { send(a); },
            [this](const core::AskRoom& a) {
                if (Link* link = link_of(a.to)) link->room_asked = true;
                (void)tell_rooms();
            },
            [this](const core::Checkpoint& a) { send(a); },
            [this](const core::Drop& a) { send(a); },
            [this](const core::Place& a) { send(a); },
            [this](const core::NextStep& a) { send(a); },
            [this](const core::Spawn& a) { spawn(a); },
            [this](const core::Configure& a) {
                if (Link* link = link_of(a.to)) configure(*link);
            },
            [this](const core::Kill& a) {
                Link* link = link_of(a.to);
                if (link == nullptr) return;
                if (a.dump) dump(*link, a.reason);
                if (link->process) link->process->kill_now();
            },
            [this](const core::SendShed& a) {
                if (Link* link = link_of(a.to)) (void)port::send_shed(*link->channel, a.deadline);
            },
            [this](const core::SendStop& a) {
                if (Link* link = link_of(a.to)) (void)port::send_stop(*link->channel, a.reason);
            },
            [this](const core::AskProgress& a) {
                Link* link = link_of(a.to);
                if (link == nullptr) return;
                const auto usage = link->channel->usage();
                const bool unread = usage.to_plugin_bytes + usage.queued_bytes != 0;
                const bool knocking = link->kind == core::Kind::Gateway && clients_wait();
                step(core::ProgressIs{a.to, link->channel->progress(), unread, knocking});
            },
            [this](const core::PeerCall& a) { send(a); },
            [this](core::JournalAppend& a) { journal_->write(std::move(a)); },
            [this](core::JournalRemove& a) { journal_->write(std::move(a)); },
            [this](core::JournalBury& a) { journal_->write(std::move(a)); },
            [this](const core::CommandDone& a) { command_done(a); },
            [this](const core::CommandProgress& a) {
                const auto it = commands_.find(a.command);
                if (it != commands_.end() && it->second.responder)
                    it->second.responder->progress(a.text);
            },
            [this](const core::RememberBadBuilds& a) {
                nlohmann::json document = nlohmann::json::object();
                for (const auto& [identity, bad] : a.builds)
                    document[identity] = {
                        {"plugin", bad.slot}, {"build", bad.build}, {"why", bad.why}};
                if (auto saved = control::StateFile(paths_.state("bad_builds.json")).save(document);
                    !saved)
                    log::error("daemon",
                               "the memory of bad builds was not saved",
                               {{"why", saved.error().message}});
            },
            [](const core::Note& a) { log::write(level_of(a.level), a.room, a.text); },
            [this](const core::ExitNode& a) {
                if (a.code != 0) log::error("daemon", a.reason);
                finish(a.code);
            },
        },
        action);
}

// Everything that was sent goes out, everything that came is taken, the timer stands where the core wants it; then the
// loop may block. One wake policy looks at all links at once.
void Daemon::before_block() {
    dead_.clear();
    watch_doors();
    bool quiet = false;
    for (int round = 0; round < kRoundsBeforePoll && !quiet; ++round) {
        quiet = port::Channel::before_block_all(channels_) && !tell_rooms();
        if (quiet) break;
        turn_.clear();
        for (const auto& [generation, link] : links_) turn_.push_back(generation);
        for (const std::uint64_t generation : turn_) {
            if (const auto it = links_.find(generation); it != links_.end())
                (void)drain(*it->second);
        }
        if (core_->next_deadline() <= monotonic_ns()) step(core::Tick{});
    }
    timer_->set(core_->next_deadline());
    before_block_->stay_awake(!quiet);
    if (!announced_ && core_->ready()) announce();
}

// Whoever was asked for room and has nothing waiting for its ring any more has it. True: the core was told of one.
bool Daemon::tell_rooms() {
    std::vector<Handle> roomy;
    for (const auto& [generation, link] : links_) {
        if (!link->room_asked || link->channel->usage().queued_records != 0) continue;
        link->room_asked = false;
        roomy.push_back(link->handle);
    }
    for (const Handle handle : roomy) step(core::GatewayRoomIn{handle});
    return !roomy.empty();
}

// Looks for clients only while a knock would be news, so that a busy node does not wake for each of them.
void Daemon::watch_doors() {
    if (knocked_) doors_.clear();
    if (!doors_.empty() || finished_ || !core_->supervision().knock_wanted()) return;
    knocked_ = false;
    for (const Listener& listener : listeners_)
        doors_.push_back(std::make_unique<loop::Poll>(&loop_, listener.fd.get(), [this] {
            if (std::exchange(knocked_, true)) return;
            step(core::Knocked{});
        }));
}

bool Daemon::clients_wait() const {
    return std::any_of(listeners_.begin(), listeners_.end(), [](const Listener& listener) {
        pollfd look{listener.fd.get(), POLLIN, 0};
        return ::poll(&look, 1, 0) == 1;
    });
}

// Alarms are told in Unix time, the core counts in CLOCK_MONOTONIC.
void Daemon::tell_clock() {
    step(core::ClockIs{wall_ns() - monotonic_ns()});
}

bool Daemon::drain(Link& link) {
    if (!link.violation.empty()) return false;
    const auto more = link.channel->drain(
        kDrainBudget, [&](const port::Received& record) { received(link, record); });
    if (more) return *more;
    link.violation = more.error().message;
    step(core::Violated{link.handle, link.violation});
    return false;
}

void Daemon::announce() {
    announced_ = true;
    std::string first_class;
    if (!served().empty()) first_class = served().begin()->first;
    std::ofstream address(paths_.address_file());
    address << (listeners_.empty() ? "" : listeners_.front().address) << "\n" << std::flush;
    if (!address)
        log::error("daemon",
                   "cannot write the address to " + paths_.address_file().string() +
                       ", there may be no room: the node serves all the same");
    for (const Listener& listener : listeners_) {
        if (listener.cluster) continue;
        std::printf("holdfast serves on http://%s\n", listener.address.c_str());
        if (!first_class.empty())
            std::printf("try:  curl -X POST http://%s/actor/%s/alice\n",
                        listener.address.c_str(),
                        first_class.c_str());
    }
    std::fflush(stdout);
    log::info("daemon",
              "ready",
              {{"node", config_.node.id}, {"after_ms", (monotonic_ns() - started_) / core::kMs}});
}

}  // namespace hf::daemon
