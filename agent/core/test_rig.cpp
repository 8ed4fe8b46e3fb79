// The perfect processes, see test_rig.hpp. Compiled once: a core with all its maps is much to instantiate in every test.
#include "agent/core/test_rig.hpp"

#include <algorithm>

namespace hf::core::testing {

Bytes TableCodec::encode(const HoldRecord& record) const {
    return keep(holds_, record);
}

Bytes TableCodec::encode(const LogEntry& entry) const {
    return keep(entries_, entry);
}

Bytes TableCodec::encode(const StoreRecord& record) const {
    return keep(stores_, record);
}

Bytes TableCodec::encode(const NodeRecord& record) const {
    return keep(nodes_, record);
}

Result<HoldRecord> TableCodec::decode_hold(BytesView b) const {
    return holds_.at(at(b));
}

Result<LogEntry> TableCodec::decode_entry(BytesView b) const {
    return entries_.at(at(b));
}

Result<StoreRecord> TableCodec::decode_store(BytesView b) const {
    return stores_.at(at(b));
}

Result<NodeRecord> TableCodec::decode_node(BytesView b) const {
    return nodes_.at(at(b));
}

Config small_config() {
    Config config;
    config.node_id = "n1";
    config.instance_id = "i";
    config.classes.push_back({"counter", 5 * kSecond, 1024});
    const auto slot = [&](const char* name, Kind kind, const char* policy) {
        SlotSpec spec;
        spec.name = name;
        spec.kind = kind;
        spec.build.use = name;
        spec.build.binary_hash = std::string("hash-") + name;
        spec.build.policy = policy;
        config.slots.push_back(spec);
    };
    slot("gateway", Kind::Gateway, "");
    slot("storage", Kind::Storage, "");
    slot("runtime", Kind::Runtime, "");
    slot("placement", Kind::Placement, "first");
    slot("drain", Kind::Drain, "paced");
    return config;
}

Rig::Rig(Config config,
         BadBuilds bad,
         const std::function<void(Rig&)>& before,
         JournalLoaded journal,
         std::shared_ptr<TestBucket> shared,
         Time start)
    : core(std::move(config), codec, std::move(bad)), now(start), bucket(std::move(shared)) {
    if (before) before(*this);
    feed(std::move(journal));
    feed(StartNode{});
}
Rig::~Rig() = default;

void Rig::feed(Event event) {
    pending_.push_back(std::move(event));
    if (busy_) return;
    busy_ = true;
    while (!pending_.empty()) {
        Event next = std::move(pending_.front());
        pending_.pop_front();
        Actions out;
        core.step(std::move(next), now, out);
        for (Action& action : out) {
            done.emplace_back(now, action);
            if (!hook || !hook(action)) play(action);
        }
    }
    busy_ = false;
}

void Rig::run_to(Time until) {
    while (core.next_deadline() <= until) {
        now = std::max(now, core.next_deadline());
        feed(Tick{});
    }
    now = until;
}

std::uint64_t Rig::ask(const std::string& name, Time deadline, Bytes event) {
    RequestIn request;
    request.from = serving(Kind::Gateway);
    request.req_id = ++last_req_;
    request.class_name = "counter";
    request.name = name;
    request.event = std::move(event);
    request.deadline = deadline;
    feed(request);
    return request.req_id;
}

const ReplyOut* Rig::reply(std::uint64_t req_id) const {
    for (const auto& [at, action] : done) {
        const auto* found = std::get_if<ReplyOut>(&action);
        if (found != nullptr && found->req_id == req_id) return found;
    }
    return nullptr;
}

Time Rig::replied_at(std::uint64_t req_id) const {
    for (const auto& [at, action] : done) {
        const auto* found = std::get_if<ReplyOut>(&action);
        if (found != nullptr && found->req_id == req_id) return at;
    }
    return kNever;
}

std::vector<Time> Rig::spawns(const std::string& slot) const {
    std::vector<Time> out;
    for (const auto& [at, spawn] : all<Spawn>()) {
        if (spawn.slot == slot) out.push_back(at);
    }
    return out;
}

Handle Rig::last(const std::string& slot) const {
    Handle out;
    for (const auto& [at, spawn] : all<Spawn>()) {
        if (spawn.slot == slot) out = spawn.handle;
    }
    return out;
}

void Rig::die(Handle handle, bool by_fault, OpId current) {
    Exited exited;
    exited.from = handle;
    exited.summary = by_fault ? "killed by signal 11" : "killed by signal 9";
    exited.by_fault = by_fault;
    exited.current = current;
    feed(exited);
}

void Rig::play(const Action& action) {
    if (const auto* spawn = std::get_if<Spawn>(&action)) {
        kinds_[spawn->handle] = spawn->kind;
        feed(Greeted{spawn->handle, spawn->kind, spawn->slot, "1", {spawn->build.policy}});
    } else if (const auto* configure = std::get_if<Configure>(&action)) {
        feed(ReadyIn{configure->to, true, ""});
    } else if (const auto* kill = std::get_if<Kill>(&action)) {
        die(kill->to, false);
    } else if (const auto* stop = std::get_if<SendStop>(&action)) {
        feed(Exited{.from = stop->to, .summary = "exit 0"});
    } else if (const auto* shed = std::get_if<SendShed>(&action)) {
        feed(Exited{.from = shed->to, .summary = "exit 0"});
    } else if (const auto* progress_ask = std::get_if<AskProgress>(&action)) {
        feed(ProgressIs{progress_ask->to, progress, unread});
    } else if (const auto* request = std::get_if<StoreRequest>(&action)) {
        store(*request);
    } else if (const auto* activate = std::get_if<Activate>(&action)) {
        ActivatedIn answer{
            activate->to, activate->op, activate->activation, ActivateStatus::Ok, ""};
        answer.wants_stop = wants_stop.contains(activate->name);
        feed(answer);
    } else if (const auto* deliver = std::get_if<Deliver>(&action)) {
        feed(delivered(*deliver));
    } else if (const auto* drop = std::get_if<Drop>(&action)) {
        feed(DroppedIn{drop->to, drop->op});
    } else if (const auto* place = std::get_if<Place>(&action)) {
        feed(PlacedIn{place->to, place->op, false, place->candidates.front().id, ""});
    } else if (const auto* room = std::get_if<AskRoom>(&action)) {
        feed(GatewayRoomIn{room->to});
    } else if (const auto* append = std::get_if<JournalAppend>(&action)) {
        feed(JournalAppended{append->op, Outcome::Applied, ""});
    } else if (const auto* remove = std::get_if<JournalRemove>(&action)) {
        feed(JournalRemoved{remove->op, true});
    } else if (const auto* step = std::get_if<NextStep>(&action)) {
        feed(StepIn{step->to, step->op, {0}, 0, false, ""});
    }
}

void Rig::store(const StoreRequest& request) {
    StoreAnswer answer;
    answer.from = request.to;
    answer.op = request.op;
    answer.outcome = Outcome::Applied;
    auto& objects = bucket->objects;
    const auto found = objects.find(request.key);
    const bool there = found != objects.end();
    if (request.verb == StoreVerb::Get) {
        if (!there) answer.outcome = Outcome::NotFound;
        if (there) answer.body = found->second.body;
        if (there) answer.etag = found->second.etag;
    } else if (request.verb == StoreVerb::Put) {
        const bool met = request.condition == Condition::None ||
                         (request.condition == Condition::IfAbsent
                              ? !there
                              : there && found->second.etag == request.etag);
        if (met) bucket->put(request.key, request.body);
        if (!met) answer.outcome = Outcome::PreconditionFailed;
        if (met) answer.etag = objects.at(request.key).etag;
    } else if (request.verb == StoreVerb::Delete) {
        objects.erase(request.key);
        for (const std::string& key : request.also) objects.erase(key);
    } else if (request.verb == StoreVerb::List) {
        for (const auto& [key, object] : objects) {
            if (key.starts_with(request.key))
                answer.objects.push_back({key, object.body.size(), object.etag});
        }
    }
    answer.conditional_writes = true;
    feed(answer);
}

DeliveredIn Rig::delivered(const Deliver& deliver) {
    DeliveredIn answer;
    answer.from = deliver.to;
    answer.op = deliver.op;
    answer.activation = deliver.activation;
    answer.status = DeliverStatus::Ok;
    answer.reply_status = 200;
    answer.changes = {1};
    return answer;
}

}  // namespace hf::core::testing
