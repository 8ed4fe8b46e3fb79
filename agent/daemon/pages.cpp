// Pages the gateway serves on the supervisor's behalf: healthz, readyz, metrics (part of Daemon).
#include <algorithm>

#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"
#include "agent/log/log.hpp"

namespace hf::daemon {

namespace {
// A page must fit the reply the gateway reserved for it. With 64 instances some of what plugins count themselves does not.
constexpr std::size_t kPageBytesMax = 60 * 1024;

// Counted by the core since this start.
struct Total {
    const char* name;
    std::uint64_t core::Stats::*value;
    const char* help;
};
using core::Stats;
constexpr Total kTotals[] = {
    {"holdfast_events_accepted_total", &Stats::accepted, "Events taken into a mailbox."},
    {"holdfast_events_answered_total", &Stats::answered, "Answers given to accepted events."},
    {"holdfast_events_refused_busy_total",
     &Stats::refused_busy,
     "Requests refused with 503 before they were accepted: a mailbox or the node was full."},
    {"holdfast_events_deadline_total",
     &Stats::deadline,
     "Events not answered by their deadline (504): whether they took effect is not known."},
    {"holdfast_events_undone_total",
     &Stats::undone,
     "Events undone after a write of theirs was refused (503)."},
    {"holdfast_events_redelivered_total",
     &Stats::redelivered,
     "Events run again because a runtime instance died."},
    {"holdfast_events_poisoned_total",
     &Stats::poisoned,
     "Events given up with 500 because three runtime instances died on them."},
    {"holdfast_calls_total", &Stats::calls, "Calls from one actor to another."},
    {"holdfast_calls_refused_total",
     &Stats::calls_refused,
     "Calls that ended without an answer: a cycle, no room, a time-out, a failure."},
    {"holdfast_alarms_fired_total", &Stats::alarms_fired, "Alarms whose handler ended well."},
    {"holdfast_alarms_failed_total",
     &Stats::alarms_failed,
     "Runs of alarm handlers that failed; each is tried again."},
    {"holdfast_alarms_refused_total",
     &Stats::alarms_refused,
     "Alarms that had to wait for room, or for the store or a runtime."},
    {"holdfast_messages_sent_total",
     &Stats::messages_sent,
     "One-way messages stored with their sender."},
    {"holdfast_messages_applied_total",
     &Stats::messages_applied,
     "One-way messages stored as applied by their receiver."},
    {"holdfast_messages_dead_total",
     &Stats::messages_dead,
     "One-way messages given up: no such actor, or a handler that kept failing."},
    {"holdfast_units_evicted_total",
     &Stats::evicted,
     "Actors that left a runtime's memory because they were idle, or to make room."},
    {"holdfast_stops_total", &Stats::stops, "Stop events whose handler ended well, stored."},
    {"holdfast_stops_failed_total",
     &Stats::stops_failed,
     "Stop events that failed, were late or were cut off: the actor left memory all the same."},
    {"holdfast_log_commits_total", &Stats::commits, "Log entries stored."},
    {"holdfast_log_unknown_total",
     &Stats::commit_unknown,
     "Writes whose outcome had to be settled by asking again."},
    {"holdfast_log_bases_total", &Stats::bases, "Whole states written, each in place of its log."},
    {"holdfast_units_fenced_total",
     &Stats::fenced,
     "Actors lost to another owner of the store; never on a node that has it for itself."},
    {"holdfast_units_acquired_total", &Stats::acquires, "Holds taken."},
    {"holdfast_units_loaded_total", &Stats::loads, "Actors read from the store."},
    {"holdfast_placed_by_policy_total", &Stats::placed_by_policy, "Placements by the policy."},
    {"holdfast_placed_by_default_total",
     &Stats::placed_by_default,
     "Placements by the built-in rule: there was no policy, or it did not answer in time."},
    {"holdfast_placement_late_total",
     &Stats::place_late,
     "Questions a policy did not answer within place_deadline."},
    {"holdfast_placement_invalid_total",
     &Stats::place_invalid,
     "Answers of policies that were no candidate."},
    {"holdfast_plugin_restarts_total", &Stats::restarts, "Instances started again."},
    {"holdfast_journal_accepted_total",
     &Stats::journalled,
     "Requests accepted for later, in the journal when their client heard so."},
    {"holdfast_journal_applied_total", &Stats::journal_applied, "Of them applied, or given up."},
    {"holdfast_buffered_lost_total",
     &Stats::buffered_lost,
     "Requests accepted in memory that were not applied."},
    {"holdfast_leases_lost_total",
     &Stats::leases_lost,
     "Incarnations of this node that ended with their lease."},
    {"holdfast_passed_on_total",
     &Stats::passed_on,
     "Events asked of the node that holds their actor."},
    {"holdfast_passed_on_broken_total",
     &Stats::passed_on_broken,
     "Of them, those that node did not answer."},
    {"holdfast_units_taken_over_total", &Stats::taken_over, "Holds taken of nodes that are gone."},
    {"holdfast_stale_messages_total",
     &Stats::stale_messages,
     "Late messages of what is gone or settled, passed over."},
};

struct Described {
    const char* name;
    const char* help;
};
constexpr Described kOthers[] = {
    {"holdfast_log_lines_folded_total", "Log lines counted into the identical one before them."},
    {"holdfast_log_lines_capped_total", "Lines of plugins beyond their rate, left out."},
    {"holdfast_units", "Actors this node knows."},
    {"holdfast_journal_waiting", "Requests accepted for later and not applied yet."},
    {"holdfast_journal_bytes", "And their bytes."},
    {"holdfast_events_open", "Events accepted and not yet answered."},
    {"holdfast_bulk_bodies", "Large bodies that are open: of events, of answers on their way."},
    {"holdfast_bulk_bytes", "And their bytes."},
    {"holdfast_ready", "1 while the node serves, as /readyz says."},
    {"holdfast_lease_left_seconds", "Of this node's lease; not there without one."},
    {"holdfast_uptime_seconds", "Since holdfastd was started."},
    {"holdfast_bad_builds", "Builds remembered as bad, not chosen again by themselves."},
    {"holdfast_plugin_failed", "Instances of a plugin that are not started again by themselves."},
    {"holdfast_link_open_requests", "Requests to an instance without an answer."},
    {"holdfast_link_queued_bytes", "Bytes that wait for room in an instance's ring."},
    {"holdfast_runtime_resident", "Actors in the memory of a runtime instance."},
    {"holdfast_plugin_counter", "What a plugin counts itself, by the name it gives."},
};
}  // namespace

void Daemon::answer_query(Link& link, const port::Received& record) {
    const std::string page = record.as<abi::Query>().page()->str();
    std::uint16_t status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
    if (page == "healthz") {
        body = "ok\n";
    } else if (page == "readyz") {
        const std::string why = core_->not_ready_because();
        status = why.empty() ? 200 : 503;
        body = why.empty() ? "ready\n" : why + "\n";
    } else if (page == "metrics") {
        type = "text/plain; version=0.0.4; charset=utf-8";
        body = metrics_page();
        if (body.size() > kPageBytesMax) body.resize(body.rfind('\n', kPageBytesMax) + 1);
    } else {
        status = 404;
        body = "no page named " + page + "\n";
    }
    auto& fbb = link.channel->builder();
    const auto type_text = fbb.CreateString(type);
    // SAFETY: text seen as bytes.
    const auto bytes =
        fbb.CreateVector(reinterpret_cast<const std::uint8_t*>(body.data()), body.size());
    (void)link.channel->reply(record.req_id, abi::CreateQueried(fbb, status, type_text, bytes));
}

std::string Daemon::metrics_page() {
    const auto total = [&](std::string_view name, std::uint64_t value) {
        registry_.counter(name).raise_to(value);
    };
    for (const Total& one : kTotals) {
        registry_.describe(one.name, one.help);
        total(one.name, core_->stats().*one.value);
    }
    for (const Described& one : kOthers) registry_.describe(one.name, one.help);
    const log::Stats lines = log::stats();
    total("holdfast_log_lines_folded_total", lines.folded);
    total("holdfast_log_lines_capped_total", lines.capped);
    registry_.gauge("holdfast_units").set(static_cast<std::int64_t>(core_->units().size()));
    registry_.gauge("holdfast_events_open")
        .set(static_cast<std::int64_t>(core_->units().accepted_open()));
    registry_.gauge("holdfast_journal_waiting")
        .set(static_cast<std::int64_t>(core_->units().journal().size()));
    registry_.gauge("holdfast_journal_bytes")
        .set(static_cast<std::int64_t>(core_->units().journal().bytes()));
    const core::Bulk& bulk = core_->units().bulk();
    registry_.gauge("holdfast_bulk_bodies").set(static_cast<std::int64_t>(bulk.count()));
    registry_.gauge("holdfast_bulk_bytes").set(static_cast<std::int64_t>(bulk.bytes()));
    registry_.gauge("holdfast_ready").set(core_->ready() ? 1 : 0);
    if (!config_.node.lease.none())
        registry_.gauge("holdfast_lease_left_seconds").set(core_->lease().left() / core::kSecond);
    registry_.gauge("holdfast_uptime_seconds").set((monotonic_ns() - started_) / core::kSecond);
    const auto& supervision = core_->supervision();
    registry_.gauge("holdfast_bad_builds")
        .set(static_cast<std::int64_t>(supervision.bad_builds().size()));
    for (const auto& slot : supervision.slots()) {
        const auto failed = std::count_if(
            slot.seats.begin(), slot.seats.end(), [](const auto& one) { return one.failed; });
        registry_.gauge("holdfast_plugin_failed", {{"plugin", slot.spec.name}}).set(failed);
    }
    for (const auto& [generation, link] : links_) {
        const std::string seat = std::to_string(link->seat);
        const metrics::Label plugin{"plugin", link->slot};
        const metrics::Label instance{"instance", seat};
        const auto usage = link->channel->usage();
        registry_.gauge("holdfast_link_open_requests", {plugin, instance})
            .set(static_cast<std::int64_t>(usage.open_requests));
        registry_.gauge("holdfast_link_queued_bytes", {plugin, instance})
            .set(static_cast<std::int64_t>(usage.queued_bytes));
        if (link->kind == core::Kind::Runtime)
            registry_.gauge("holdfast_runtime_resident", {plugin, instance})
                .set(core_->units().resident_on(link->handle));
        for (const auto& [name, value] : link->counters) {
            const metrics::Label counter{"counter", name};
            registry_.gauge("holdfast_plugin_counter", {plugin, instance, counter})
                .set(static_cast<std::int64_t>(value));
        }
    }
    return registry_.text("holdfast_plugin_counter");
}

}  // namespace hf::daemon
