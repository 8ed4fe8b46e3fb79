// The core: step(Event, now) -> Actions. Pure and deterministic: no descriptor, thread, clock or library beyond the
// standard one. The daemon feeds it from links, processes and timers; the simulator feeds the same code from a seed.
//
// It owns who runs (Supervision), where units live (Placer), what they hold and did (Units), and what is asked of the
// store (StoreClient); this class wires them and knows the order in which a node starts and stops.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/control.hpp"
#include "agent/core/env.hpp"
#include "agent/core/events.hpp"
#include "agent/core/lease.hpp"
#include "agent/core/peers.hpp"
#include "agent/core/placer.hpp"
#include "agent/core/store_client.hpp"
#include "agent/core/supervision.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

class Core final : private Supervision::Listener {
public:
    // `bad_builds`: what RememberBadBuilds last said, from an earlier run.
    Core(Config config, const Codec& codec, BadBuilds bad_builds = {});

    // Handles one event and appends what is to be done. `now` never goes back.
    void step(Event event, Time now, Actions& out);
    // When a Tick is due at the latest; kNever when nothing waits for time.
    [[nodiscard]] Time next_deadline() const;

    // For status, metrics and health pages; valid between steps.
    // Refused: this store is not to be used, and the node ends.
    enum class BootStage : std::uint8_t {
        Waiting,
        Probing,
        StoreRecord,
        NodeRecord,
        Open,
        Refused
    };
    [[nodiscard]] bool ready() const;
    [[nodiscard]] std::string not_ready_because() const;
    [[nodiscard]] const Stats& stats() const { return env_.stats; }
    [[nodiscard]] const Units& units() const { return units_; }
    [[nodiscard]] const Supervision& supervision() const { return supervision_; }
    [[nodiscard]] const StoreClient& store() const { return store_; }
    [[nodiscard]] const Lease& lease() const { return lease_; }
    [[nodiscard]] const Peers& peers() const { return peers_; }
    [[nodiscard]] const Control& control() const { return control_; }
    [[nodiscard]] const Config& config() const { return env_.config; }
    [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }
    [[nodiscard]] const std::string& store_id() const { return store_id_; }

private:
    void on_serving(Kind kind, Handle handle) override;
    void on_retiring(Kind kind, Handle handle) override;
    void on_gone(const Gone& gone) override;

    void handle(Tick& event);
    void handle(RequestIn& event) { units_.request(event); }
    void handle(SocketOpenedIn& event) { units_.socket_opened(event); }
    void handle(SocketMessageIn& event) { units_.socket_message(event); }
    void handle(SocketClosedIn& event) { units_.socket_closed(event); }
    void handle(GatewayRoomIn& event) { units_.gateway_room(event); }
    void handle(JournalLoaded& event) { units_.journal_loaded(event); }
    void handle(JournalAppended& event) { units_.journal_appended(event); }
    void handle(JournalRemoved& event) { units_.journal_removed(event); }
    void handle(ClockIs& event) { env_.wall_offset = event.offset; }
    void handle(DeliveredIn& event) { units_.delivered(event); }
    void handle(StoreAnswer& event);
    void handle(ActivatedIn& event) { units_.activated(event); }
    void handle(CheckpointedIn& event) { units_.checkpointed(event); }
    void handle(DroppedIn& event) { units_.dropped(event); }
    void handle(PlacedIn& event);
    void handle(StepIn& event);
    void handle(Greeted& event) { supervision_.greeted(event); }
    void handle(ReadyIn& event) { supervision_.ready(event); }
    void handle(Exited& event);
    void handle(Violated& event) { supervision_.violated(event); }
    void handle(ProgressIs& event) { supervision_.progress_is(event); }
    void handle(SwapCommand& event) { supervision_.swap(event); }
    void handle(RollbackCommand& event) { supervision_.rollback(event); }
    void handle(ResetCommand& event) { supervision_.reset(event); }
    void handle(StartNode& event);
    void handle(StopNode& event);
    void handle(BodyReleasedIn& event) { units_.body_released(event); }
    void handle(ConfigChanged& event);
    void handle(Knocked&) { supervision_.knocked(); }
    void handle(PeerRepliedIn& event) { units_.peer_replied(event); }
    void handle(DrainCommand& event);
    void handle(SleptIs& event) { env_.slept = std::max(env_.slept, event.total); }

    // boot.cpp: the node makes itself known to the store before it holds anything.
    void boot();
    void probed(StoreAnswer& answer);
    void store_read(StoreAnswer& answer);
    void store_known(const StoreRecord& record, const std::string& etag);
    void node_read(StoreAnswer& answer);
    [[nodiscard]] bool id_is_free(const NodeRecord& record, const std::string& etag);
    void publish(NodeRecord record, Condition condition, const std::string& etag);
    void published(const NodeRecord& record, const std::string& etag, Time asked);
    void lease_lost(const std::string& why);
    void boot_failed(const std::string& why, bool fatal);
    void advance_stop();

    Env env_;
    StoreClient store_;
    Supervision supervision_;
    Lease lease_;
    Peers peers_;
    Control control_;
    Units units_;
    Placer placer_;
    BootStage stage_ = BootStage::Waiting;
    std::string boot_trouble_;
    Time boot_retry_ = kNever;
    std::uint64_t incarnation_ = 0;  // 0: none now
    std::optional<std::uint64_t>
        reaped_;  // the last incarnation before this process, if it is reaped
    std::string store_id_;
    // Another instance's record under this node's id: what it was and since when (lease time).
    std::string stranger_etag_;
    Time stranger_since_ = 0;

    enum class Stopping : std::uint8_t {
        No,
        Shedding,
        Actors,
        Settling,
        Ending,
        Resigning,
        StorageLast,
        Done
    };
    Stopping stopping_ = Stopping::No;
    Time stop_by_ = kNever;
    Time stop_step_by_ = kNever;
    std::string stop_reason_;
};

}  // namespace hf::core
