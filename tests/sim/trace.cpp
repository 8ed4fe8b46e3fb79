// The core's actions as lines of the trace.
#include "agent/core/keys.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

namespace {

std::string to(Handle handle) {
    return " -> g" + std::to_string(handle.generation);
}
std::string number(std::uint64_t value) {
    return std::to_string(value);
}
const char* verb_name(core::StoreVerb verb) {
    static constexpr const char* kNames[] = {"get", "put", "delete", "list", "probe"};
    return kNames[static_cast<std::size_t>(verb)];
}

struct Line {
    std::string operator()(const core::ReplyOut& a) const {
        const auto payload = unpack_reply(a.body);
        return "reply req " + number(a.req_id) + " " + reason_name(a.reason) +
               (payload ? " value " + number(payload->value) + " last #" + number(payload->last)
                        : " (" + a.text + ")") +
               to(a.to);
    }
    std::string operator()(const core::Deliver& a) const {
        const auto event = unpack_event(a.event);
        return "deliver kind " + std::to_string(static_cast<int>(a.kind)) + " #" +
               number(event ? event->id : 0) + " op " + number(a.op) + " activation " +
               number(a.activation) + " attempt " + number(a.attempt) + to(a.to);
    }
    std::string operator()(const core::StoreRequest& a) const {
        return std::string(verb_name(a.verb)) + " " + a.key + " op " + number(a.op) + to(a.to);
    }
    std::string operator()(const core::Activate& a) const {
        return "activate " + a.unit + " op " + number(a.op) + " activation " +
               number(a.activation) + " part " + number(a.part) + " entries " +
               number(a.entries.size()) + (a.more ? " more" : "") + to(a.to);
    }
    std::string operator()(const core::Resume& a) const {
        return "resume op " + number(a.op) + " activation " + number(a.activation) + " code " +
               std::to_string(a.code) + to(a.to);
    }
    std::string operator()(const core::PeerCall& a) const {
        const auto event = unpack_event(a.event);
        return "ask " + a.target + " at " + a.address + " kind " +
               std::to_string(static_cast<int>(a.origin.ask)) + " #" +
               number(event ? event->id : 0) + " " + a.name + " source " + a.origin.source + " n " +
               number(a.origin.n) + " op " + number(a.op) + to(a.to);
    }
    std::string operator()(const core::SocketTaken& a) const { return "socket taken" + to(a.to); }
    std::string operator()(const core::SocketSend& a) const { return "socket send" + to(a.to); }
    std::string operator()(const core::CloseSocket& a) const { return "close socket" + to(a.to); }
    std::string operator()(const core::AskRoom& a) const { return "ask room" + to(a.to); }
    std::string operator()(const core::Checkpoint& a) const {
        return "checkpoint op " + number(a.op) + " activation " + number(a.activation) + to(a.to);
    }
    std::string operator()(const core::Drop& a) const {
        return "drop activation " + number(a.activation) + to(a.to);
    }
    std::string operator()(const core::Place& a) const {
        return "place " + a.subject + " op " + number(a.op) + to(a.to);
    }
    std::string operator()(const core::NextStep& a) const { return "next step" + to(a.to); }
    std::string operator()(const core::Spawn& a) const {
        return "spawn " + a.slot + "/" + number(a.seat) + " " + a.build.label() + to(a.handle);
    }
    std::string operator()(const core::Configure& a) const { return "configure" + to(a.to); }
    std::string operator()(const core::Kill& a) const { return "kill: " + a.reason + to(a.to); }
    std::string operator()(const core::SendShed& a) const { return "shed" + to(a.to); }
    std::string operator()(const core::SendStop& a) const { return "stop: " + a.reason + to(a.to); }
    std::string operator()(const core::AskProgress& a) const { return "progress?" + to(a.to); }
    std::string operator()(const core::JournalAppend& a) const {
        return "journal: append " + std::to_string(a.item.n) + " for " + a.item.name;
    }
    std::string operator()(const core::JournalRemove& a) const {
        return "journal: remove " + std::to_string(a.numbers.size()) + " from " +
               std::to_string(a.numbers.front());
    }
    std::string operator()(const core::JournalBury& a) const {
        return "journal: bury " + a.letter.source + " " + std::to_string(a.letter.n);
    }
    std::string operator()(const core::CommandDone& a) const {
        return "command " + number(a.command) + (a.ok ? " done: " : " failed: ") + a.text;
    }
    std::string operator()(const core::CommandProgress& a) const {
        return "command " + number(a.command) + ": " + a.text;
    }
    std::string operator()(const core::RememberBadBuilds& a) const {
        return "bad builds: " + number(a.builds.size());
    }
    std::string operator()(const core::Note& a) const { return "note " + a.room + ": " + a.text; }
    std::string operator()(const core::ExitNode& a) const {
        return "exit " + std::to_string(a.code) + ": " + a.reason;
    }
};

}  // namespace

void Node::trace_action(const core::Action& action) const {
    trace(std::visit(Line{}, action));
}

}  // namespace hf::sim
