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
    [[nodiscard]] Bytes encode(const HoldRecord& record) const override;
    [[nodiscard]] Bytes encode(const LogEntry& entry) const override;
    [[nodiscard]] Bytes encode(const StoreRecord& record) const override;
    [[nodiscard]] Bytes encode(const NodeRecord& record) const override;
    [[nodiscard]] Result<HoldRecord> decode_hold(BytesView b) const override;
    [[nodiscard]] Result<LogEntry> decode_entry(BytesView b) const override;
    [[nodiscard]] Result<StoreRecord> decode_store(BytesView b) const override;
    [[nodiscard]] Result<NodeRecord> decode_node(BytesView b) const override;

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

[[nodiscard]] Config small_config();

class Rig {
public:
    // `before`: what the store holds already, see put().
    explicit Rig(Config config = small_config(),
                 BadBuilds bad = {},
                 const std::function<void(Rig&)>& before = {},
                 JournalLoaded journal = {"stream", 1, {}},
                 std::shared_ptr<TestBucket> shared = std::make_shared<TestBucket>(),
                 Time start = kSecond);
    ~Rig();
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;
    void put(const std::string& key, Bytes body) { bucket->put(key, std::move(body)); }

    // Feeds one event and everything that follows from it at this instant.
    void feed(Event event);
    // Time passes, with a tick whenever the core wants one.
    void run_to(Time until);
    void run_for(Time span) { run_to(now + span); }

    // A request through the gateway; answers its req_id.
    std::uint64_t ask(const std::string& name, Time deadline, Bytes event = {1});
    [[nodiscard]] const ReplyOut* reply(std::uint64_t req_id) const;
    [[nodiscard]] Time replied_at(std::uint64_t req_id) const;
    template <class T>
    [[nodiscard]] std::vector<std::pair<Time, T>> all() const {
        std::vector<std::pair<Time, T>> out;
        for (const auto& [at, action] : done) {
            if (const auto* found = std::get_if<T>(&action)) out.emplace_back(at, *found);
        }
        return out;
    }
    [[nodiscard]] std::vector<Time> spawns(const std::string& slot) const;
    [[nodiscard]] Handle last(const std::string& slot) const;
    [[nodiscard]] Handle serving(Kind kind) const { return core.supervision().serving_one(kind); }
    void die(Handle handle, bool by_fault, OpId current = 0);

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
    void play(const Action& action);
    void store(const StoreRequest& request);

public:
    [[nodiscard]] static DeliveredIn delivered(const Deliver& deliver);

private:
    std::deque<Event> pending_;
    bool busy_ = false;
    std::map<Handle, Kind> kinds_;
    std::uint64_t last_req_ = 0;
};

}  // namespace hf::core::testing
