// The nodes of this store as their records say and as this node sees them (part of Daemon). Shapes: docs/cluster.md.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"

namespace hf::daemon {

namespace {
using nlohmann::json;

// As agent.toml says it.
std::string lease_text(const config::Config& config) {
    for (const config::Effective& one : config.effective)
        if (one.table == "node" && one.key == "lease") return one.value;
    return "none";
}

json node_json(const core::NodeRecord& record) {
    return {{"id", record.id},
            {"address", record.http_address},
            {"peer_address", record.peer_address()},
            {"tenant", record.tenant},
            {"app", record.app},
            {"state", record.state},
            {"incarnation", record.incarnation},
            {"ttl_ms", record.ttl_ms},
            {"dead", record.dead ? json(*record.dead) : json(nullptr)}};
}

// What this node makes of another: `silent` is one that has not renewed for longer than its lease, and is not recorded as
// dead yet.
const char* view_of(const core::Peers::Peer& peer, core::Time age) {
    if (!peer.readable) return "unreadable";
    const core::NodeRecord& record = peer.record;
    if (record.dead && *record.dead >= record.incarnation) return "gone";
    return age / core::kMs > static_cast<core::Time>(record.ttl_ms) ? "silent" : "alive";
}
}  // namespace

// Of a lease the members that tell how it stands; of none, that there is none.
json Daemon::lease_json() const {
    json out = {{"lease", lease_text(config_)}};
    if (config_.node.lease.none()) return out;
    const core::Lease& lease = core_->lease();
    out["lease_left_ms"] = lease.left() / core::kMs;
    json nodes = json::array();
    // Lease time, as the core counts it.
    const core::Time now = monotonic_ns() + slept_.total();
    if (core_->incarnation() != 0) {
        json self = node_json(lease.record());
        self["self"] = true;
        self["view"] = lease.valid() ? "alive" : "gone";
        nodes.push_back(std::move(self));
    }
    for (const auto& [id, peer] : core_->peers().all()) {
        const core::Time age = std::max<core::Time>(0, now - peer.since);
        json other = peer.readable ? node_json(peer.record) : json::object({{"id", id}});
        other["self"] = false;
        other["renewed_ms"] = age / core::kMs;
        other["view"] = view_of(peer, age);
        nodes.push_back(std::move(other));
    }
    out["nodes"] = std::move(nodes);
    const core::Drain& drain = core_->units().drain();
    const core::Drain::Left& left = drain.left();
    out["drain"] = {{"state", core::drain_state_name(drain.state())},
                    {"actors", left.held},
                    {"alarms", left.alarms},
                    {"requests", left.journal},
                    {"under_way", drain.under_way()}};
    return out;
}

json Daemon::cluster_json() const {
    json out = {{"node", config_.node.id},
                {"incarnation", core_->incarnation()},
                {"store", core_->store_id()}};
    out.update(lease_json());
    if (!out.contains("nodes")) out["nodes"] = json::array();
    return out;
}

}  // namespace hf::daemon
