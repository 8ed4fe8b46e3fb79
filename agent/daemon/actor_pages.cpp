// What an operator sees of actors, of the journal and of messages that were given up (part of Daemon).
#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"
#include "agent/daemon/requests.hpp"

namespace hf::daemon {

using nlohmann::json;

namespace {
// Rows of one answer: of the longest names they stay below the line bound of the control socket.
constexpr std::size_t kActorsPageMax = 1000;
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

void Daemon::show_actors(const json& request, const control::Responder& responder) const {
    const std::string wanted = text_of(request, "class");
    if (!wanted.empty() && !served().contains(wanted)) {
        std::string known;
        for (const auto& [name, entry] : served()) known += (known.empty() ? "" : ", ") + name;
        return responder.fail(fail(Code::NotFound,
                                   "class '" + wanted.substr(0, kNameBytesShown) +
                                       "' is not deployed on this node; there is " +
                                       (known.empty() ? "none" : known)));
    }
    const std::string after = text_of(request, "after");
    std::size_t limit = kActorsPageMax;
    if (const auto it = request.find("limit"); it != request.end() && it->is_number_unsigned())
        limit = std::clamp<std::size_t>(it->get<std::size_t>(), 1, kActorsPageMax);
    std::vector<const core::Unit*> units;
    for (const auto& [id, unit] : core_->units().all()) {
        if (unit->key > after && (wanted.empty() || core_->units().class_name(*unit) == wanted))
            units.push_back(unit.get());
    }
    const std::size_t count = std::min(limit, units.size());
    std::partial_sort(units.begin(),
                      units.begin() + static_cast<std::ptrdiff_t>(count),
                      units.end(),
                      [](const core::Unit* a, const core::Unit* b) { return a->key < b->key; });
    json rows = json::array();
    for (std::size_t i = 0; i < count; ++i) rows.push_back(actor_json(*units[i]));
    responder.done({{"actors", rows}, {"more", units.size() > count}});
}

json Daemon::actor_json(const core::Unit& unit) const {
    const std::string& class_name = core_->units().class_name(unit);
    const auto* instance = core_->supervision().find(unit.runtime);
    // Where it lives, else where it would: during a deploy both versions run.
    const ModuleTable& table =
        instance == nullptr ? served() : table_named(instance->build.modules).modules;
    const auto module = table.find(class_name);
    const bool serving = unit.hold == core::Hold::Serving;
    // Not held here, and known to be held by another node when it was looked for last.
    const bool elsewhere = unit.hold == core::Hold::Idle && !unit.owner.empty();
    const std::string state = serving     ? core::memory_name(unit.memory)
                              : elsewhere ? "elsewhere"
                                          : core::hold_name(unit.hold);
    return {
        {"unit", unit.key},  // escaped: the exact name
        {"class", class_name},
        {"name", as_text_json(unit.name)},
        {"state", state},
        {"node",
         elsewhere ? json(unit.owner)
         : serving ? json(config_.node.id)
                   : json(nullptr)},
        {"module", module == table.end() ? json(nullptr) : json(shown(module->second.wasm_sha256))},
        {"epoch", unit.epoch},
        {"seq", unit.next_seq == 0 ? 0 : unit.next_seq - 1},
        {"instance", instance == nullptr ? json(nullptr) : json(instance->seat)},
        {"queued", unit.mailbox.size() + (unit.running ? 1 : 0)},
        {"unstored", unit.pending.size()},
        {"idle_ms", (monotonic_ns() - unit.last_active) / core::kMs}};
}

void Daemon::show_actor(const json& request, const control::Responder& responder) const {
    const std::string name = text_of(request, "actor");
    const core::Units& units = core_->units();
    const core::Journal::Depth journal = units.journal().depth(name);
    const core::Unit* unit = units.find(name);
    if (unit == nullptr && journal.waiting == 0)
        return responder.fail(fail(Code::NotFound,
                                   "nobody has asked for the actor '" +
                                       name.substr(0, kNameBytesShown) +
                                       "' since this node started; it is named class/name"));
    json out = unit == nullptr ? json::object() : actor_json(*unit);
    out.update({{"actor", as_text_json(name)}, {"journal", depth_json(journal)}});
    if (unit != nullptr)
        out.update({{"queued_bytes", unit->mailbox_bytes},
                    {"messages_undelivered", unit->stored.outbox.size()},
                    {"alarm", unit->alarm ? json(utc(unit->alarm->due_ms)) : json(nullptr)},
                    {"sockets", unit->sockets}});
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
