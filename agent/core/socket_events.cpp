// WebSockets and their actors: accepting, messages in, messages out as their gateway has room, the end (part of Units).
#include <algorithm>
#include <map>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/handler_pause.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// Close codes of RFC 6455, 7.4.
constexpr std::uint16_t kClosePolicy = 1008;
constexpr std::uint16_t kCloseAgain = 1013;
constexpr std::uint16_t kBroken = 1006;
constexpr std::uint16_t kSwitching = 101;
// What a close frame has room for; a gateway that says more must not make an event that no record holds.
constexpr std::size_t kReasonBytesMax = 123;

bool accepts(const ReplyOut& reply) {
    return reply.reason == ReplyReason::Ok && (reply.status == 0 || reply.status == kSwitching);
}
}  // namespace

void Units::socket_opened(const SocketOpenedIn& event) {
    const auto refuse_it = [&](ReplyReason reason, std::string text) {
        refuse(event.from, event.req_id, Refusal{reason, std::move(text)});
    };
    if (sockets_.size() >= env_.config.limits.sockets_max)
        return refuse_it(ReplyReason::Busy,
                         "the node has as many WebSockets as a gateway and its successor may have: "
                         "twice its sockets_max");
    const std::uint64_t number = sockets_.add({event.from, event.connection, 0, false});
    if (number == 0)
        return supervision_.answered_badly(event.from, "used a connection's number twice", false);
    Mail mail;
    mail.waiting.origin = FromSocketOpened{event.from, event.req_id, number};
    mail.event = socket_opened_event(number, event.event);
    mail.deadline = latest(event.deadline);
    mail.trace = event.trace;
    if (auto refusal = admit(event.class_name, event.name, std::move(mail))) {
        sockets_.remove(number);
        refuse_it(refusal->reason, std::move(refusal->text));
    }
}

void Units::open_answered(Unit& unit, const FromSocketOpened& from, ReplyOut reply) {
    Socket* socket = sockets_.find(from.connection);
    if (accepts(reply)) {
        reply.status = kSwitching;
        // Its gateway is gone: the actor hears that it was open for no time at all.
        if (socket == nullptr) {
            close_event(unit, {from.connection, kBroken, "", 0});
        } else {
            socket->unit = unit.id;
            socket->open = true;
            ++unit.sockets;
        }
    } else {
        sockets_.remove(from.connection);
    }
    reply.to = from.gateway;
    reply.req_id = from.req_id;
    emit_reply(std::move(reply));
}

// Its client heard 504 before: the actor took what is no connection any more, and hears so.
void Units::opened_late(Unit& unit, const FromSocketOpened& from, const ReplyOut& reply) {
    if (accepts(reply)) close_event(unit, {from.connection, kBroken, "", 0});
}

void Units::socket_message(SocketMessageIn& event) {
    const auto refuse_it = [&](std::uint16_t code, std::string text) {
        supervision_.told(event.from);
        env_.emit(SocketTaken{event.from, event.req_id, false, code, std::move(text)});
    };
    Socket* socket = sockets_.find(sockets_.number_of(event.from, event.connection));
    if (socket == nullptr || !socket->open)
        return refuse_it(kClosePolicy, "no such connection is open");
    if (closing_) return refuse_it(kCloseAgain, "the node stops");
    Unit* unit = unit_of(socket->unit);
    HF_CHECK(unit != nullptr, "a unit with open sockets is not forgotten");
    Mail mail;
    mail.waiting.origin = FromSocketMessage{event.from, event.req_id};
    mail.event = socket_message_event(
        sockets_.number_of(event.from, event.connection), event.binary, event.data);
    mail.deadline = latest(event.deadline);
    mail.trace = event.trace;
    if (const auto refusal = admit_to(*unit, std::move(mail)))
        refuse_it(kCloseAgain, refusal->text);
}

void Units::socket_closed(const SocketClosedIn& event) {
    const std::uint64_t number = sockets_.number_of(event.from, event.connection);
    const Socket* socket = sockets_.find(number);
    if (socket == nullptr || !socket->open) return;  // the open event's own end sees to it
    Unit* unit = unit_of(socket->unit);
    HF_CHECK(unit != nullptr, "a unit with open sockets is not forgotten");
    sockets_.remove(number);
    --unit->sockets;
    close_event(*unit, {number, event.code, event.reason.substr(0, kReasonBytesMax), 0});
}

// Always taken: it was let in with its connection, and there is one for each.
void Units::close_event(Unit& unit, FromSocketClosed closed) {
    Mail mail;
    mail.event = socket_closed_event(closed.connection, closed.code, closed.reason);
    mail.waiting.origin = std::move(closed);
    push(unit, std::move(mail));
}

// Who could not be loaded still is to hear that its connection is gone: it comes again, and until then the unit is not
// forgotten. A handler that failed has heard it.
void Units::close_failed(Unit& unit, FromSocketClosed closed, const ReplyOut& reply) {
    const bool heard =
        reply.reason == ReplyReason::ActorFailed || reply.reason == ReplyReason::ActorLimit;
    if (!heard && !closing_ && closed.tries < kHandlerTriesMax &&
        closes_later_.size() < env_.config.limits.sockets_max) {
        const Time again = env_.now + handler_pause(closed.tries++);
        ++unit.sockets;
        closes_later_.emplace(again, std::pair(unit.id, std::move(closed)));
        return;
    }
    env_.note(heard ? NoteLevel::Debug : NoteLevel::Warn,
              "units",
              unit.key + ": the end of connection " + std::to_string(closed.connection) +
                  (heard ? " and its handler: " : " is not told to it: ") + reply.text);
}

void Units::retry_closes() {
    while (!closing_ && !closes_later_.empty() && closes_later_.begin()->first <= env_.now) {
        auto [id, closed] = std::move(closes_later_.begin()->second);
        closes_later_.erase(closes_later_.begin());
        Unit* unit = unit_of(id);
        HF_CHECK(unit != nullptr, "a unit that is to hear of a connection's end is not forgotten");
        --unit->sockets;
        close_event(*unit, std::move(closed));
    }
}

void Units::gateway_gone(Handle gateway) {
    bulk_.gateway_gone(gateway);
    peers_of_gateway_gone(gateway);
    for (const std::uint64_t number : sockets_.of_gateway(gateway)) {
        const Socket socket = *sockets_.find(number);
        sockets_.remove(number);
        if (!socket.open) continue;
        Unit* unit = unit_of(socket.unit);
        HF_CHECK(unit != nullptr, "a unit with open sockets is not forgotten");
        --unit->sockets;
        close_event(*unit, {number, kBroken, "the gateway ended", 0});
    }
    if (sockets_.emptied(gateway)) open_held_gates(gateway);
}

// Where a unit's message goes; nullptr: the connection is gone, or somebody else's.
const Socket* Units::socket_of(const Unit& unit, std::uint64_t number) {
    const Socket* socket = sockets_.find(number);
    return socket != nullptr && socket->open && socket->unit == unit.id ? socket : nullptr;
}

void Units::send_sockets(Unit& unit, std::vector<SocketWish>& wishes) {
    for (SocketWish& wish : wishes) {
        if (!wish.close) {
            send_to_all(unit, wish);
        } else if (const Socket* socket = socket_of(unit, wish.connection)) {
            const std::string reason(wish.data.begin(), wish.data.end());
            env_.emit(CloseSocket{socket->gateway, socket->theirs, wish.code, reason});
            count_sent(socket->gateway, 1, reason.size());
        }
    }
}

// One message for each gateway, whose order of connections is the actor's.
void Units::send_to_all(Unit& unit, SocketWish& wish) {
    std::map<Handle, std::vector<std::uint64_t>> targets;
    const auto add = [&](std::uint64_t number) {
        if (const Socket* socket = socket_of(unit, number))
            targets[socket->gateway].push_back(socket->theirs);
    };
    add(wish.connection);
    for (const std::uint64_t number : wish.also) add(number);
    const std::size_t bytes = wish.data.size();
    for (auto& [gateway, connections] : targets) {
        const std::size_t count = connections.size();
        const bool last = gateway == targets.rbegin()->first;
        env_.emit(SocketSend{
            gateway, std::move(connections), wish.binary, last ? std::move(wish.data) : wish.data});
        count_sent(gateway, count, bytes);
    }
}

void Units::count_sent(Handle gateway, std::size_t connections, std::size_t bytes) {
    if (!sockets_.sent(gateway, connections, bytes)) return;
    supervision_.told(gateway);  // one that does not read this is found out
    env_.emit(AskRoom{gateway});
}

// Whether one of its messages is for a gateway that has no room; the unit is remembered then.
bool Units::waits_for_room(Unit& unit, const Output& output) {
    if (!sockets_.any_full()) return false;
    const auto full = [&](std::uint64_t number) {
        const Socket* socket = socket_of(unit, number);
        return socket != nullptr && sockets_.is_full(socket->gateway);
    };
    const bool waits =
        std::any_of(output.sockets.begin(), output.sockets.end(), [&](const SocketWish& wish) {
            return full(wish.connection) || std::any_of(wish.also.begin(), wish.also.end(), full);
        });
    if (waits && !unit.gate_held) {
        unit.gate_held = true;
        held_gates_.push_back(unit.id);
    }
    return waits;
}

void Units::gateway_room(const GatewayRoomIn& event) {
    if (!sockets_.emptied(event.from)) {
        ++env_.stats.stale_messages;
        return;
    }
    open_held_gates(event.from);
}

// In the order in which they came to wait, each once, until the gateway is full again.
void Units::open_held_gates(Handle gateway) {
    for (std::size_t left = held_gates_.size(); left > 0 && !sockets_.is_full(gateway); --left) {
        Unit* unit = unit_of(held_gates_.front());
        held_gates_.pop_front();
        if (unit == nullptr) continue;
        unit->gate_held = false;
        pump(*unit);
    }
}

}  // namespace hf::core
