#include "agent/core/control.hpp"

#include <algorithm>
#include <utility>

namespace hf::core {

namespace {
constexpr std::uint32_t kListPage = 256;
constexpr unsigned kMissesToEnd = 2;
}  // namespace

void Control::open() {
    if (env_.config.lease.none()) return;
    open_ = true;
    list();
}

// What it knew stays: a node that comes back goes on as it was asked to.
void Control::close() {
    open_ = false;
    store_.abandon(std::exchange(op_, 0));
    list_at_ = kNever;
}

void Control::list() {
    if (after_.empty()) {
        seen_.clear();
        keys_ = 0;
    }
    list_at_ = kNever;
    op_ = store_.list(
        key::control_prefix(), after_, kListPage, [this](StoreAnswer& answer) { listed(answer); });
}

void Control::listed(StoreAnswer& answer) {
    op_ = 0;
    const bool bad = answer.outcome != Outcome::Applied || (answer.more && answer.objects.empty());
    if (bad) {
        env_.note(NoteLevel::Warn,
                  "control",
                  "control/ cannot be listed, what was asked before holds: " +
                      (answer.reason.empty() ? "it has more, and nothing came" : answer.reason));
        after_.clear();
        list_at_ = env_.lease_now() + env_.config.lease.renew;
        return;
    }
    for (const ObjectInfo& object : answer.objects) {
        after_ = object.key;
        const auto node = parse_drain_key(object.key);  // others are of no concern here
        if (++keys_ <= kKeysMax && node) seen_.insert(*node);
    }
    if (answer.more && keys_ < kKeysMax) return list();
    if (keys_ > kKeysMax || answer.more)
        env_.note(NoteLevel::Error,
                  "control",
                  "control/ has more than " + std::to_string(kKeysMax) + " keys; the rest is not read");
    finish();
}

void Control::finish() {
    after_.clear();
    list_at_ = env_.lease_now() + env_.config.lease.renew;
    bool changed = false;
    for (const std::string& node : seen_) changed = drains_.insert_or_assign(node, 0U).second || changed;
    for (auto it = drains_.begin(); it != drains_.end();) {
        const bool over = !seen_.contains(it->first) && ++it->second >= kMissesToEnd;
        changed = changed || over;
        it = over ? drains_.erase(it) : std::next(it);
    }
    if (changed) news_();
}

void Control::ask(const DrainCommand& command) {
    const auto done = [this, command](StoreAnswer& answer) {
        const bool ok = answer.outcome == Outcome::Applied ||
                        (!command.drain && answer.outcome == Outcome::NotFound);
        const std::string what = command.drain ? "gives its actors away" : "keeps its actors";
        env_.emit(CommandDone{command.command,
                              ok,
                              ok ? "node " + command.node + " " + what + " from its next look at the store on"
                                 : "the store did not take it: " + answer.reason});
        if (ok && open_ && op_ == 0) list_at_ = env_.lease_now();
    };
    const std::string name = key::drain(command.node);
    if (command.drain)
        store_.put(name, {}, Condition::None, "", WriteId{}, done);
    else
        store_.erase({name}, done);
}

void Control::tick() {
    if (open_ && list_at_ <= env_.lease_now()) list();
}

Time Control::next_deadline() const {
    if (!open_ || list_at_ == kNever) return kNever;
    return std::max<Time>(0, list_at_ - env_.slept);
}

}  // namespace hf::core
