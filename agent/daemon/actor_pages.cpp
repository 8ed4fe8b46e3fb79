// What an operator sees of one actor, of the journal and of messages that were given up (part of Daemon).
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"

namespace hf::daemon {

using nlohmann::json;

namespace {
// Letters of one answer: with payloads left out they stay below the line bound of the control socket.
constexpr std::size_t kLettersShown = 256;
constexpr std::size_t kNameBytesShown = 200;

// Names are bytes; JSON is text.
json as_text_json(const std::string& bytes) {
    return json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string utc(std::int64_t unix_ms) {
    const std::time_t seconds = unix_ms / 1000;
    std::tm parts{};
    std::array<char, 32> text{};
    if (::gmtime_r(&seconds, &parts) == nullptr) return std::to_string(unix_ms);
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

json depth_json(const core::Journal::Depth& depth) {
    const std::int64_t age = depth.oldest_ms == 0 ? 0 : wall_ms() - depth.oldest_ms;
    return {{"waiting", depth.waiting}, {"oldest_age_ms", std::max<std::int64_t>(0, age)}};
}
}  // namespace

json Daemon::journal_json() const {
    json out = depth_json(core_->units().journal().depth());
    out["bytes"] = core_->units().journal().bytes();
    return out;
}

void Daemon::show_actor(const json& request, const control::Responder& responder) const {
    const auto wanted = request.find("actor");
    const std::string name =
        wanted != request.end() && wanted->is_string() ? wanted->get<std::string>() : "";
    const core::Units& units = core_->units();
    const core::Journal::Depth journal = units.journal().depth(name);
    const core::Unit* unit = units.find(name);
    if (unit == nullptr && journal.waiting == 0)
        return responder.fail(fail(Code::NotFound,
                                   "nobody has asked for the actor '" +
                                       name.substr(0, kNameBytesShown) +
                                       "' since this node started; it is named class/name"));
    json out = {{"actor", as_text_json(name)}, {"journal", depth_json(journal)}};
    if (unit != nullptr) {
        const auto* instance = core_->supervision().find(unit->runtime);
        const bool serving = unit->hold == core::Hold::Serving;
        out.update(
            {{"unit", unit->key},
             {"state", serving ? core::memory_name(unit->memory) : core::hold_name(unit->hold)},
             {"epoch", unit->epoch},
             {"seq", unit->next_seq == 0 ? 0 : unit->next_seq - 1},
             {"instance", instance == nullptr ? json(nullptr) : json(instance->seat)},
             {"queued", unit->mailbox.size() + (unit->running ? 1 : 0)},
             {"queued_bytes", unit->mailbox_bytes},
             {"unstored", unit->pending.size()},
             {"messages_undelivered", unit->stored.outbox.size()},
             {"alarm", unit->alarm ? json(utc(unit->alarm->due_ms)) : json(nullptr)},
             {"sockets", unit->sockets},
             {"idle_ms", (monotonic_ns() - unit->last_active) / core::kMs}});
    }
    responder.done(out);
}

void Daemon::show_letters(const control::Responder& responder) const {
    const auto letters = journal_->letters(kLettersShown);
    if (!letters) return responder.fail(letters.error());
    json rows = json::array();
    for (const core::DeadLetter& letter : *letters)
        rows.push_back({{"at", utc(letter.at_ms)},
                        {"source", letter.source},
                        {"number", letter.n},
                        {"target", as_text_json(letter.target)},
                        {"method", as_text_json(letter.method)},
                        {"bytes", letter.payload.size()},
                        {"why", as_text_json(letter.why)}});
    responder.done({{"letters", rows}});
}

}  // namespace hf::daemon
