// One message to many sockets, and the room of their gateway: what is sent at once, what waits, and what ends the waiting.
#include <doctest/doctest.h>

#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;

namespace {

constexpr std::size_t kPeople = 20;
// To twenty people it fills a portion by itself.
const Bytes kLong(48 * 1024, 7);

// An actor "room" that tells everybody the same at each message and request, and a gateway that may be slow.
class Room {
public:
    Rig rig;
    std::vector<std::uint64_t> numbers;  // the node's, in the order of joining
    std::function<std::vector<SocketWish>(const Deliver&)> says;
    bool roomy = true;  // the gateway answers AskRoom
    bool disk_full = false;
    bool shed_takes_time = false;
    std::size_t runs = 0;

    explicit Room(std::size_t people = kPeople) {
        rig.hook = [this](const Action& action) { return take(action); };
        says = [this](const Deliver&) { return std::vector<SocketWish>{to_all(kLong)}; };
        gateway = rig.serving(Kind::Gateway);
        for (std::uint64_t i = 1; i <= people; ++i) join(i);
    }
    void join(std::uint64_t connection) {
        SocketOpenedIn opened;
        opened.from = gateway;
        opened.req_id = 1000 + connection;
        opened.connection = connection;
        opened.class_name = "counter";
        opened.name = "room";
        opened.deadline = rig.now + 10 * kSecond;
        rig.feed(opened);
    }
    void talk(std::uint64_t connection) {
        SocketMessageIn message;
        message.from = gateway;
        message.req_id = 2000 + connection;
        message.connection = connection;
        message.data = {1};
        message.deadline = rig.now + 10 * kSecond;
        rig.feed(message);
    }
    std::uint64_t ask() { return rig.ask("room", rig.now + 10 * kSecond); }
    void has_room() { rig.feed(GatewayRoomIn{gateway}); }

    [[nodiscard]] SocketWish to_all(Bytes data) const {
        SocketWish wish;
        wish.connection = numbers.front();
        wish.also.assign(numbers.begin() + 1, numbers.end());
        wish.data = std::move(data);
        return wish;
    }
    [[nodiscard]] std::size_t sent() const { return rig.all<SocketSend>().size(); }
    [[nodiscard]] std::size_t taken() const { return rig.all<SocketTaken>().size(); }
    [[nodiscard]] std::size_t asked() const { return rig.all<AskRoom>().size(); }

    Handle gateway;

private:
    bool take(const Action& action) {
        if (std::holds_alternative<AskRoom>(action)) return !roomy;
        if (std::holds_alternative<SendShed>(action)) return shed_takes_time;
        if (const auto* request = std::get_if<StoreRequest>(&action)) {
            if (!disk_full || request->verb != StoreVerb::Put) return false;
            StoreAnswer refused;
            refused.from = request->to;
            refused.op = request->op;
            refused.outcome = Outcome::Refused;
            refused.reason = "disk full";
            rig.feed(refused);
            return true;
        }
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr) return false;
        DeliveredIn answer = Rig::delivered(*deliver);
        if (deliver->kind == EventKind::WsOpen) {
            std::uint64_t number = 0;
            for (std::size_t i = 8; i-- > 0;) number = number << 8U | deliver->event[i];
            numbers.push_back(number);
        }
        if (deliver->kind != EventKind::Http) answer.reply_status = 0;
        if (deliver->kind == EventKind::WsMessage || deliver->kind == EventKind::Http) {
            ++runs;
            answer.sockets = says(*deliver);
        }
        rig.feed(answer);
        return true;
    }
};

}  // namespace

TEST_CASE("one_message_to_many_leaves_once_with_the_connections_in_their_order") {
    Room room(4);
    REQUIRE(room.numbers.size() == 4);
    room.says = [&](const Deliver&) {
        SocketWish wish;
        wish.connection = room.numbers[2];
        // Twice to one, to nobody, and to one that has gone.
        wish.also = {room.numbers[0], room.numbers[2], 99, room.numbers[1], room.numbers[3]};
        wish.binary = true;
        wish.data = {9};
        return std::vector<SocketWish>{wish};
    };
    room.rig.feed(SocketClosedIn{room.gateway, 2, 1000, ""});
    room.talk(1);
    const auto sent = room.rig.all<SocketSend>();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].second.to == room.gateway);
    CHECK(sent[0].second.connections == std::vector<std::uint64_t>{3, 1, 3, 4});
    CHECK(sent[0].second.binary);
    CHECK(sent[0].second.data == Bytes{9});
    CHECK(room.asked() == 0);
}

TEST_CASE("during_a_swap_of_the_gateway_each_of_the_two_gets_the_message_for_its_sockets") {
    Room room(2);
    room.shed_takes_time = true;
    const Handle first = room.gateway;
    room.rig.feed(SwapCommand{1, "gateway", Build{"gateway", "", "other-hash", "", {}}});
    room.gateway = room.rig.serving(Kind::Gateway);
    REQUIRE(room.gateway != first);
    room.join(1);
    REQUIRE(room.numbers.size() == 3);
    room.talk(1);
    const auto sent = room.rig.all<SocketSend>();
    REQUIRE(sent.size() == 2);
    CHECK(sent[0].second.to == first);
    CHECK(sent[0].second.connections == std::vector<std::uint64_t>{1, 2});
    CHECK(sent[1].second.to == room.gateway);
    CHECK(sent[1].second.connections == std::vector<std::uint64_t>{1});
    CHECK(sent[0].second.data == sent[1].second.data);
}

TEST_CASE("what_a_gateway_has_no_room_for_waits_behind_the_gate_and_leaves_in_order") {
    Room room;
    room.roomy = false;
    room.talk(1);
    CHECK(room.sent() == 1);
    CHECK(room.taken() == 1);
    CHECK(room.asked() == 1);
    room.talk(2);
    const std::uint64_t request = room.ask();
    CHECK(room.runs == 3);
    CHECK(room.sent() == 1);
    CHECK(room.taken() == 1);  // who spoke says nothing more before his words have left
    CHECK(room.rig.reply(request) == nullptr);
    CHECK_FALSE(room.rig.core.units().quiet());
    room.has_room();
    CHECK(room.sent() == 2);
    CHECK(room.taken() == 2);
    CHECK(room.asked() == 2);
    CHECK(room.rig.reply(request) == nullptr);
    room.has_room();
    CHECK(room.sent() == 3);
    REQUIRE(room.rig.reply(request) != nullptr);
    CHECK(room.rig.reply(request)->status == 200);
    CHECK(room.rig.core.units().quiet());
    // A word that nobody waits for is passed over.
    room.has_room();
    const auto stale = room.rig.core.stats().stale_messages;
    room.has_room();
    CHECK(room.rig.core.stats().stale_messages == stale + 1);
    // Others do not wait: they have nothing for that gateway's sockets.
    room.talk(3);
    room.talk(4);
    const std::uint64_t other = room.rig.ask("quiet", room.rig.now + kSecond);
    CHECK(room.sent() == 4);
    room.says = [](const Deliver&) { return std::vector<SocketWish>{}; };
    const std::uint64_t silent = room.rig.ask("silent", room.rig.now + kSecond);
    CHECK(room.rig.reply(silent) != nullptr);
    CHECK(room.rig.reply(other) != nullptr);  // the sockets it names are not its own
}

TEST_CASE("a_room_whose_gateway_is_slow_runs_ahead_by_its_bound_only") {
    Room room;
    room.roomy = false;
    constexpr std::size_t kAhead = 32;
    for (int i = 0; i < 50; ++i) room.ask();
    CHECK(room.runs == 1 + kAhead);
    CHECK(room.sent() == 1);
    for (std::size_t i = 0; i < 50; ++i) room.has_room();
    CHECK(room.runs == 50);
    CHECK(room.sent() == 50);
    CHECK(room.rig.core.units().quiet());
}

TEST_CASE("small_messages_go_in_portions_without_waiting_for_a_fast_gateway") {
    Room room;
    room.says = [&](const Deliver&) { return std::vector<SocketWish>{room.to_all({1})}; };
    for (int i = 0; i < 220; ++i) room.ask();
    CHECK(room.sent() == 220);
    // 220 x 20 x 257 bytes are two portions and some.
    CHECK(room.asked() == 2);
}

TEST_CASE("what_was_stored_is_not_undone_because_its_gateway_has_no_room") {
    Room room;
    room.roomy = false;
    room.ask();
    const std::uint64_t stored = room.ask();
    CHECK(room.rig.reply(stored) == nullptr);
    room.disk_full = true;
    const std::uint64_t refused = room.ask();
    REQUIRE(room.rig.reply(refused) != nullptr);
    CHECK(room.rig.reply(refused)->reason == ReplyReason::Unavailable);
    REQUIRE(room.rig.reply(stored) != nullptr);
    CHECK(room.rig.reply(stored)->status == 200);
    CHECK(room.sent() == 2);
    room.disk_full = false;
    room.has_room();
    const std::uint64_t later = room.ask();
    CHECK(room.rig.reply(later)->status == 200);
    CHECK(room.rig.core.units().quiet());
}

TEST_CASE("the_end_of_a_gateway_ends_the_waiting_for_its_room") {
    Room room;
    room.roomy = false;
    room.talk(1);
    room.talk(2);
    const std::uint64_t request = room.ask();
    CHECK(room.rig.reply(request) == nullptr);
    room.rig.die(room.gateway, false);
    CHECK(room.rig.reply(request) != nullptr);
    room.rig.run_for(kSecond);
    CHECK(room.sent() == 1);
    CHECK(room.rig.core.units().sockets() == 0);
    CHECK(room.rig.core.units().quiet());
}

TEST_CASE("a_runtime_that_names_more_connections_than_an_event_may_is_ended") {
    Room room(1);
    room.says = [&](const Deliver&) {
        SocketWish wish = room.to_all({1});
        wish.also.assign(room.runs == 1 ? 1024 : 1023, wish.connection);
        return std::vector<SocketWish>{wish};
    };
    const std::uint64_t request = room.ask();
    const auto kills = room.rig.all<Kill>();
    REQUIRE(kills.size() == 1);
    CHECK(kills[0].second.reason.find("more connections") != std::string::npos);
    room.rig.run_for(kSecond);
    // It was the only one, so the event waits for its successor, which names as many as there may be.
    REQUIRE(room.rig.reply(request) != nullptr);
    CHECK(room.rig.reply(request)->status == 200);
    REQUIRE(room.sent() == 1);
    CHECK(room.rig.all<SocketSend>()[0].second.connections.size() == 1024);
}
