// How a node makes itself known to its store: probe, `store` record, `nodes/<id>` with a new incarnation (part of Core).
//
// With lease = none the daemon holds the store's directory lock for this process alone, so whatever the records say of
// other owners, those are dead; a store in shared mode is refused because there that would not be true.
#include "agent/core/core.hpp"
#include "agent/core/keys.hpp"

namespace hf::core {

namespace {
constexpr Time kBootRetry =
    1 * kSecond;  // a store that refuses may recover (disk full); the node stays up and says why
}  // namespace

void Core::boot_failed(const std::string& why, bool fatal) {
    boot_trouble_ = "the store cannot be used: " + why;
    env_.note(NoteLevel::Error, "boot", boot_trouble_);
    stage_ = BootStage::Waiting;
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
        return store_known(*record);
    }
    if (answer.outcome != Outcome::NotFound) return boot_failed(answer.reason, false);
    StoreRecord record;
    static constexpr char kDigits[] = "0123456789abcdef";
    for (int i = 0; i < 32; ++i) record.id.push_back(kDigits[env_.random.below(16)]);
    store_.put(key::store(),
               env_.codec.encode(record),
               Condition::IfAbsent,
               "",
               env_.new_write_id(),
               [this, record](StoreAnswer& stored) {
                   if (stored.outcome == Outcome::Applied) return store_known(record);
                   if (stored.outcome == Outcome::PreconditionFailed)
                       return store_.get(key::store(),
                                         [this](StoreAnswer& got) { store_read(got); }),
                              void();
                   boot_failed(stored.reason, false);
               });
}

void Core::store_known(const StoreRecord& record) {
    if (record.mode != "exclusive")
        return boot_failed("its mode is '" + record.mode +
                               "' and this node has lease = \"none\", which needs 'exclusive'",
                           true);
    store_id_ = record.id;
    stage_ = BootStage::NodeRecord;
    store_.get(key::node(env_.config.node_id), [this](StoreAnswer& got) { node_read(got); });
}

void Core::node_read(StoreAnswer& answer) {
    NodeRecord record;
    Condition condition = Condition::IfAbsent;
    std::uint64_t before = 0;
    if (answer.outcome == Outcome::Applied) {
        auto decoded = env_.codec.decode_node(answer.body);
        if (!decoded)
            return boot_failed("its record of node '" + env_.config.node_id +
                                   "' is damaged: " + decoded.error().message,
                               true);
        record = std::move(decoded).value();
        before = record.incarnation;
        condition = Condition::IfMatch;
    } else if (answer.outcome != Outcome::NotFound) {
        return boot_failed(answer.reason, false);
    }
    record.id = env_.config.node_id;
    record.http_address = env_.config.http_address;
    record.tenant = env_.config.tenant;
    record.app = env_.config.app;
    record.state = "serving";
    record.incarnation = before + 1;
    record.instance = env_.config.instance_id;
    record.machine = env_.config.machine;
    record.boot = env_.config.boot;
    record.lease_seq = 0;
    record.ttl_ms = 0;
    record.store_id = store_id_;
    record.dead.reset();
    // Only what this daemon itself killed and waited for, or what ran before this boot, counts as reaped.
    if (env_.config.leftovers_reaped) record.reaped = before;
    const std::uint64_t incarnation = record.incarnation;
    const std::uint64_t reaped = record.reaped;
    store_.put(key::node(env_.config.node_id),
               env_.codec.encode(record),
               condition,
               answer.etag,
               env_.new_write_id(),
               [this, incarnation, reaped](StoreAnswer& stored) {
                   if (stored.outcome == Outcome::PreconditionFailed)
                       return store_.get(key::node(env_.config.node_id),
                                         [this](StoreAnswer& got) { node_read(got); }),
                              void();
                   if (stored.outcome != Outcome::Applied) return boot_failed(stored.reason, false);
                   incarnation_ = incarnation;
                   stage_ = BootStage::Open;
                   boot_trouble_.clear();
                   env_.note(NoteLevel::Info,
                             "boot",
                             "node " + env_.config.node_id + " is incarnation " +
                                 std::to_string(incarnation) + " on store " + store_id_);
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
                   units_.open(incarnation, reaped);
               });
}

}  // namespace hf::core
