// Pages the gateway serves on the supervisor's behalf: healthz, readyz, metrics (part of Daemon).
#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"
#include "agent/log/log.hpp"

namespace hf::daemon {

namespace {
// A page must fit the reply the gateway reserved for it.
constexpr std::size_t kPageBytesMax = 60 * 1024;
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
    const core::Stats& stats = core_->stats();
    const auto total = [&](std::string_view name, std::uint64_t value) {
        registry_.counter(name).raise_to(value);
    };
    total("holdfast_events_accepted_total", stats.accepted);
    total("holdfast_events_answered_total", stats.answered);
    total("holdfast_events_refused_busy_total", stats.refused_busy);
    total("holdfast_events_deadline_total", stats.deadline);
    total("holdfast_events_undone_total", stats.undone);
    total("holdfast_events_redelivered_total", stats.redelivered);
    total("holdfast_events_poisoned_total", stats.poisoned);
    total("holdfast_log_commits_total", stats.commits);
    total("holdfast_log_unknown_total", stats.commit_unknown);
    total("holdfast_log_bases_total", stats.bases);
    total("holdfast_units_fenced_total", stats.fenced);
    total("holdfast_units_acquired_total", stats.acquires);
    total("holdfast_units_loaded_total", stats.loads);
    total("holdfast_placed_by_policy_total", stats.placed_by_policy);
    total("holdfast_placed_by_default_total", stats.placed_by_default);
    total("holdfast_placement_late_total", stats.place_late);
    total("holdfast_placement_invalid_total", stats.place_invalid);
    total("holdfast_plugin_restarts_total", stats.restarts);
    total("holdfast_stale_messages_total", stats.stale_messages);
    const log::Stats lines = log::stats();
    total("holdfast_log_lines_folded_total", lines.folded);
    total("holdfast_log_lines_capped_total", lines.capped);
    registry_.gauge("holdfast_units").set(static_cast<std::int64_t>(core_->units().size()));
    registry_.gauge("holdfast_events_open")
        .set(static_cast<std::int64_t>(core_->units().accepted_open()));
    registry_.gauge("holdfast_ready").set(core_->ready() ? 1 : 0);
    registry_.gauge("holdfast_uptime_seconds").set((monotonic_ns() - started_) / core::kSecond);
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
    return registry_.text();
}

}  // namespace hf::daemon
