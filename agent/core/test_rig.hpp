// A core with perfect processes around it, for tests of exact times: every process greets, becomes ready, answers and ends
// at once, the store is a map. A test takes over what it wants to go wrong with `hook`. For tests only.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/core.hpp"

namespace hf::core::testing {

// Bytes that name a struct kept here: the core compares and carries them, it never looks inside.
class TableCodec final : public Codec {
public:
    [[nodiscard]] Bytes encode(const HoldRecord& record) const override {
        return keep(holds_, record);
    }
    [[nodiscard]] Bytes encode(const LogEntry& entry) const override {
        return keep(entries_, entry);
    }
    [[nodiscard]] Bytes encode(const StoreRecord& record) const override {
        return keep(stores_, record);
    }
    [[nodiscard]] Bytes encode(const NodeRecord& record) const override {
        return keep(nodes_, record);
    }
    [[nodiscard]] Result<HoldRecord> decode_hold(BytesView b) const override {
        return holds_.at(at(b));
    }
    [[nodiscard]] Result<LogEntry> decode_entry(BytesView b) const override {
        return entries_.at(at(b));
    }
    [[nodiscard]] Result<StoreRecord> decode_store(BytesView b) const override {
        return stores_.at(at(b));
    }
    [[nodiscard]] Result<NodeRecord> decode_node(BytesView b) const override {
        return nodes_.at(at(b));
    }

private:
    template <class T>
    static Bytes keep(std::vector<T>& table, const T& record) {
        table.push_back(record);
        const std::size_t number = table.size() - 1;
        return {static_cast<std::uint8_t>(number),
                static_cast<std::uint8_t>(number >> 8U),
                static_cast<std::uint8_t>(number >> 16U)};
    }
    [[nodiscard]] static std::size_t at(BytesView b) {
        return b[0] | (std::size_t{b[1]} << 8U) | (std::size_t{b[2]} << 16U);
    }
    // Of all rigs: nodes on one bucket read each other's records.
    inline static std::vector<HoldRecord> holds_;
    inline static std::vector<LogEntry> entries_;
    inline static std::vector<StoreRecord> stores_;
    inline static std::vector<NodeRecord> nodes_;
};

// What the store holds; nodes may share it.
struct TestBucket {
    struct Object {
        Bytes body;
        std::string etag;
    };
    std::map<std::string, Object> objects;
    std::uint64_t versions = 0;

    void put(const std::string& key, Bytes body) {
        objects[key] = {std::move(body), "e" + std::to_string(++versions)};
    }
};

inline Config small_config() {
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

class Rig {
public:
    // `before`: what the store holds already, see put().
    explicit Rig(Config config = small_config(),
                 BadBuilds bad = {},
                 const std::function<void(Rig&)>& before = {},
                 JournalLoaded journal = {"stream", 1, {}},
                 std::shared_ptr<TestBucket> shared = std::make_shared<TestBucket>(),
                 Time start = kSecond)
        : core(std::move(config), codec, std::move(bad)), now(start), bucket(std::move(shared)) {
        if (before) before(*this);
        feed(std::move(journal));
        feed(StartNode{});
    }
    void put(const std::string& key, Bytes body) { bucket->put(key, std::move(body)); }

    // Feeds one event and everything that follows from it at this instant.
    void feed(Event event) {
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
    // Time passes, with a tick whenever the core wants one.
    void run_to(Time until) {
        while (core.next_deadline() <= until) {
            now = std::max(now, core.next_deadline());
            feed(Tick{});
        }
        now = until;
    }
    void run_for(Time span) { run_to(now + span); }

    // A request through the gateway; answers its req_id.
    std::uint64_t ask(const std::string& name, Time deadline, Bytes event = {1}) {
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
    [[nodiscard]] const ReplyOut* reply(std::uint64_t req_id) const {
        for (const auto& [at, action] : done) {
            const auto* found = std::get_if<ReplyOut>(&action);
            if (found != nullptr && found->req_id == req_id) return found;
        }
        return nullptr;
    }
    [[nodiscard]] Time replied_at(std::uint64_t req_id) const {
        for (const auto& [at, action] : done) {
            const auto* found = std::get_if<ReplyOut>(&action);
            if (found != nullptr && found->req_id == req_id) return at;
        }
        return kNever;
    }
    template <class T>
    [[nodiscard]] std::vector<std::pair<Time, T>> all() const {
        std::vector<std::pair<Time, T>> out;
        for (const auto& [at, action] : done) {
            if (const auto* found = std::get_if<T>(&action)) out.emplace_back(at, *found);
        }
        return out;
    }
    [[nodiscard]] std::vector<Time> spawns(const std::string& slot) const {
        std::vector<Time> out;
        for (const auto& [at, spawn] : all<Spawn>()) {
            if (spawn.slot == slot) out.push_back(at);
        }
        return out;
    }
    [[nodiscard]] Handle last(const std::string& slot) const {
        Handle out;
        for (const auto& [at, spawn] : all<Spawn>()) {
            if (spawn.slot == slot) out = spawn.handle;
        }
        return out;
    }
    [[nodiscard]] Handle serving(Kind kind) const { return core.supervision().serving_one(kind); }
    void die(Handle handle, bool by_fault, OpId current = 0) {
        Exited exited;
        exited.from = handle;
        exited.summary = by_fault ? "killed by signal 11" : "killed by signal 9";
        exited.by_fault = by_fault;
        exited.current = current;
        feed(exited);
    }

    TableCodec codec;
    Core core;
    Time now = kSecond;
    std::shared_ptr<TestBucket> bucket;
    std::vector<std::pair<Time, Action>> done;
    std::function<bool(const Action&)> hook;  // true: taken care of
    std::set<std::string> wants_stop;         // units that say so when they are activated
    std::uint64_t progress = 1;
    bool unread = false;

private:
    void play(const Action& action) {
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
    void store(const StoreRequest& request) {
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

public:
    [[nodiscard]] static DeliveredIn delivered(const Deliver& deliver) {
        DeliveredIn answer;
        answer.from = deliver.to;
        answer.op = deliver.op;
        answer.activation = deliver.activation;
        answer.status = DeliverStatus::Ok;
        answer.reply_status = 200;
        answer.changes = {1};
        return answer;
    }

private:
    std::deque<Event> pending_;
    bool busy_ = false;
    std::map<Handle, Kind> kinds_;
    std::uint64_t last_req_ = 0;
};

}  // namespace hf::core::testing
