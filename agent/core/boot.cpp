// How a node makes itself known to its store: probe, `store` record, `nodes/<id>` with a new incarnation (part of Core).
//
// With lease = none the daemon holds the store's directory lock for this process alone, so whatever the records say of
// other owners, those are dead; a store in shared mode is refused because there that would not be true. With a lease the
// store is shared, and this is done again, as the next incarnation, each time the lease was lost.
#include <algorithm>

#include "agent/core/core.hpp"
#include "agent/core/keys.hpp"

namespace hf::core {

namespace {
constexpr Time kBootRetry =
    1 * kSecond;  // a store that refuses may recover (disk full); the node stays up and says why
// Longer than any lease; beyond it a record's word is not believed.
constexpr std::uint64_t kTtlMsMost = 600'000;
}  // namespace

void Core::boot_failed(const std::string& why, bool fatal) {
    boot_trouble_ = "the store cannot be used: " + why;
    env_.note(NoteLevel::Error, "boot", boot_trouble_);
    stage_ = fatal ? BootStage::Refused : BootStage::Waiting;
    if (fatal) return env_.emit(ExitNode{1, boot_trouble_});
    boot_retry_ = env_.now + kBootRetry;
}

void Core::boot() {
    if (stage_ != BootStage::Waiting || !store_.target().valid()) return;
    boot_retry_ = kNever;
    stage_ = BootStage::Probing;
    store_.probe([this](StoreAnswer& answer) { probed(answer); });
}

void Core::probed(StoreAnswer& answer) {
    if (answer.outcome != Outcome::Applied) return boot_failed(answer.reason, false);
    if (!answer.conditional_writes)
        return boot_failed("it does not honour conditional writes, which every hold depends on",
                           true);
    stage_ = BootStage::StoreRecord;
    store_.get(key::store(), [this](StoreAnswer& got) { store_read(got); });
}

void Core::store_read(StoreAnswer& answer) {
    if (answer.outcome == Outcome::Applied) {
        const auto record = env_.codec.decode_store(answer.body);
        if (!record)
            return boot_failed("its record `store` is damaged: " + record.error().message, true);
        return store_known(*record, answer.etag);
    }
    if (answer.outcome != Outcome::NotFound) return boot_failed(answer.reason, false);
    StoreRecord record;
    record.mode = env_.config.lease.none() ? "exclusive" : "shared";
    static constexpr char kDigits[] = "0123456789abcdef";
    for (int i = 0; i < 32; ++i) record.id.push_back(kDigits[env_.random.below(16)]);
    store_.put(key::store(),
               env_.codec.encode(record),
               Condition::IfAbsent,
               "",
               env_.new_write_id(),
               [this, record](StoreAnswer& stored) {
                   if (stored.outcome == Outcome::Applied) return store_known(record, stored.etag);
                   if (stored.outcome == Outcome::PreconditionFailed)
                       return store_.get(key::store(),
                                         [this](StoreAnswer& got) { store_read(got); }),
                              void();
                   boot_failed(stored.reason, false);
               });
}

void Core::store_known(const StoreRecord& record, const std::string& etag) {
    const bool alone = env_.config.lease.none();
    if (record.mode != "exclusive" && record.mode != "shared")
        return boot_failed("its mode is '" + record.mode + "', which this version does not know",
                           true);
    if (alone && record.mode != "exclusive")
        return boot_failed("its mode is '" + record.mode +
                               "' and this node has lease = \"none\", which needs 'exclusive'",
                           true);
    store_id_ = record.id;
    if (!alone && record.mode == "exclusive") {
        // No exclusive node runs: it would have the store's directory lock. What those held is of older incarnations.
        StoreRecord shared = record;
        shared.mode = "shared";
        return store_.put(key::store(),
                          env_.codec.encode(shared),
                          Condition::IfMatch,
                          etag,
                          env_.new_write_id(),
                          [this, shared](StoreAnswer& stored) {
                              if (stored.outcome == Outcome::Applied)
                                  return store_known(shared, stored.etag);
                              if (stored.outcome == Outcome::PreconditionFailed)
                                  return store_.get(key::store(),
                                                    [this](StoreAnswer& got) { store_read(got); }),
                                         void();
                              boot_failed(stored.reason, false);
                          }),
               void();
    }
    stage_ = BootStage::NodeRecord;
    store_.get(key::node(env_.config.node_id), [this](StoreAnswer& got) { node_read(got); });
}

// Whether the record under this node's id may be replaced now. Another instance's may when it has said that it stopped, or
// has stood still for as long as its lease can last: then it is fenced by the same write that replaces it.
bool Core::id_is_free(const NodeRecord& record, const std::string& etag) {
    const LeaseSpec& lease = env_.config.lease;
    const bool own = record.instance.empty() || record.instance == env_.config.instance_id;
    const bool dead = record.dead && *record.dead >= record.incarnation;
    if (lease.none() || own || dead) return true;
    if (stranger_etag_.empty()) {
        stranger_etag_ = etag;
        stranger_since_ = env_.lease_now();
    } else if (stranger_etag_ != etag) {
        boot_failed("node id '" + env_.config.node_id +
                        "' is in use: another data directory (instance " + record.instance +
                        ", machine " + record.machine + ") renews its record",
                    true);
        return false;
    }
    const Time said = static_cast<Time>(std::min<std::uint64_t>(record.ttl_ms, kTtlMsMost)) * kMs;
    if (env_.lease_now() >= stranger_since_ + std::max(said, lease.ttl) + lease.grace) return true;
    boot_failed("node id '" + env_.config.node_id + "' was another data directory's (instance " +
                    record.instance + "); its lease has to run out first",
                false);
    return false;
}

void Core::node_read(StoreAnswer& answer) {
    NodeRecord record;
    if (answer.outcome == Outcome::NotFound) return publish(record, Condition::IfAbsent, "");
    if (answer.outcome != Outcome::Applied) return boot_failed(answer.reason, false);
    auto decoded = env_.codec.decode_node(answer.body);
    if (!decoded)
        return boot_failed("its record of node '" + env_.config.node_id +
                               "' is damaged: " + decoded.error().message,
                           true);
    record = std::move(decoded).value();
    if (!id_is_free(record, answer.etag)) return;
    publish(std::move(record), Condition::IfMatch, answer.etag);
}

void Core::publish(NodeRecord record, Condition condition, const std::string& etag) {
    const std::uint64_t before = record.incarnation;
    const bool ours = env_.config.lease.none() || record.instance == env_.config.instance_id;
    record.id = env_.config.node_id;
    record.http_address = env_.config.http_address;
    if (!env_.config.peer_address.empty() && env_.config.peer_address != env_.config.http_address)
        record.other_lines[NodeRecord::kClusterLine] = env_.config.peer_address;
    else
        record.other_lines.erase(NodeRecord::kClusterLine);
    record.tenant = env_.config.tenant;
    record.app = env_.config.app;
    record.state = drain_state_name(units_.drain().state());
    record.incarnation = before + 1;
    record.instance = env_.config.instance_id;
    record.machine = env_.config.machine;
    record.boot = env_.config.boot;
    record.lease_seq = 0;
    record.ttl_ms = static_cast<std::uint64_t>(env_.config.lease.ttl / kMs);
    record.store_id = store_id_;
    record.dead.reset();
    // Only what this daemon itself killed and waited for, or what ran before this boot, counts as reaped: what the record
    // says when this process looks first. An incarnation that it asks for itself, even one of whose writing it hears nothing,
    // may have something open that still lands. What another data directory left is not ours to kill.
    if (!reaped_) reaped_ = env_.config.leftovers_reaped && ours ? before : 0;
    if (ours) record.reaped = std::max(record.reaped, *reaped_);
    const Time asked = env_.lease_now();
    store_.put(key::node(env_.config.node_id),
               env_.codec.encode(record),
               condition,
               etag,
               env_.new_write_id(),
               [this, record, asked](StoreAnswer& stored) {
                   if (stored.outcome == Outcome::PreconditionFailed ||
                       stored.outcome == Outcome::NotFound)
                       return store_.get(key::node(env_.config.node_id),
                                         [this](StoreAnswer& got) { node_read(got); }),
                              void();
                   if (stored.outcome != Outcome::Applied) return boot_failed(stored.reason, false);
                   published(record, stored.etag, asked);
               });
}

void Core::published(const NodeRecord& record, const std::string& etag, Time asked) {
    incarnation_ = record.incarnation;
    stage_ = BootStage::Open;
    boot_trouble_.clear();
    stranger_etag_.clear();
    env_.note(NoteLevel::Info,
              "boot",
              "node " + env_.config.node_id + " is incarnation " + std::to_string(incarnation_) +
                  " on store " + store_id_);
    store_.guard(
        key::store(),
        [this](const StoreAnswer& found) {
            if (found.outcome != Outcome::Applied) return false;
            const auto known = env_.codec.decode_store(found.body);
            return known && known->id == store_id_;
        },
        [this](Handle storage, const std::string& why) {
            supervision_.answered_badly(storage, why, false);
        });
    lease_.begin(record, etag, asked);
    peers_.open();
    control_.open();
    units_.open(incarnation_, record.reaped);
}

// This incarnation is over: nothing of it is served or written any more. The node comes back as the next one, if its record
// is still its own.
void Core::lease_lost(const std::string& why) {
    ++env_.stats.leases_lost;
    env_.note(NoteLevel::Error,
              "lease",
              "incarnation " + std::to_string(incarnation_) + " has ended: " + why);
    stage_ = BootStage::Waiting;
    boot_trouble_ = "the node's lease was lost: " + why;
    incarnation_ = 0;
    peers_.close();
    control_.close();
    units_.lease_lost(why);
    if (stopping_ == Stopping::No) boot_retry_ = env_.now;
}

}  // namespace hf::core
