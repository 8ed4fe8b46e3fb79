// Time, the event queue, and the course of a run.
#include "tests/sim/world.hpp"

#include <algorithm>

#include "agent/core/keys.hpp"
#include "agent/records/records.hpp"
#include "tests/sim/failure.hpp"

namespace hf::sim {

namespace {
constexpr std::uint64_t kStepsMax = 5'000'000;  // a run of the largest scenario takes 400 000
constexpr unsigned kTicksMax = 1000;  // ticks at one instant; a core that asks for more never stops
constexpr std::size_t kTailLines = 400;
// When the store's clock showed 1970; a cluster's nodes have wall clocks of their own.
constexpr std::int64_t kUnixBaseMs = 1'700'000'000'000;
}  // namespace

World::World(std::uint64_t seed, bool tracing, bool print)
    : dice(seed),
      scenario(draw_scenario(seed)),
      history(scenario.cluster()),
      node_watch(records::codec(), scenario.lease, [this] { return now_; }),
      watch(bucket, records::codec(), history, node_watch),
      network(*this),
      seed_(seed),
      tracing_(tracing),
      print_(print) {
    bucket.set_clock([this] { return kUnixBaseMs + now_ / kMs; });
    for (std::uint32_t i = 0; i < scenario.nodes; ++i) add_node("n" + std::to_string(i + 1), false);
}

Node& World::add_node(const std::string& id, bool intruder) {
    Node::Name name;
    name.number = nodes_.size();
    name.id = id;
    name.instance = intruder
                        ? "another-data-directory-" + std::to_string(name.number)
                        : (scenario.cluster() ? "data-directory-of-" + id : "the-data-directory");
    name.address = "127.0.0.1:" + std::to_string(name.number + 1);
    name.intruder = intruder;
    node_watch.introduce(name.number, name.id, name.instance);
    Node& node = *nodes_.emplace_back(std::make_unique<Node>(*this, name));
    if (scenario.cluster()) {
        const Time skew = scenario.calm ? 0 : dice.between(-2000, 2000) * kMs;
        node.set_wall(kUnixBaseMs * kMs + now_ + skew - node.now());
    }
    return node;
}

void World::trace(const std::string& line) {
    if (!tracing_) return;
    const std::string full = std::to_string(now_ / 1000) + " us  " + line;
    if (print_) std::printf("%s\n", full.c_str());
    tail_.push_back(full);
    if (tail_.size() > kTailLines) tail_.pop_front();
}

void World::after(Time delay, std::function<void()> what) {
    queue_.push({now_ + delay, ++order_, std::move(what)});
}

Node* World::node_at(const std::string& address) {
    for (const auto& node : nodes_)
        if (node->name().address == address) return node.get();
    return nullptr;
}

std::vector<Node*> World::all_up() const {
    std::vector<Node*> out;
    for (const auto& node : nodes_)
        if (node->up()) out.push_back(node.get());
    return out;
}

void World::start_all() {
    for (const auto& node : nodes_)
        if (!node->up() && !node->name().intruder) node->start_life();
}

std::int64_t World::latest_wall_ms() const {
    std::int64_t latest = latest_wall_ms_;
    for (const auto& node : nodes_) latest = std::max(latest, node->wall_ms());
    return latest;
}

void World::run() {
    if (tracing_) trace("seed " + std::to_string(seed_) + " profile " + scenario.profile);
    nodes_.front()->start_life();
    for (std::size_t i = 1; i < nodes_.size(); ++i)
        start_after(*nodes_[i], scenario.calm ? 0 : dice.between(0, 2 * kSecond));
    schedule_clients();
    schedule_chaos();
    pass(scenario.span);
    if (scenario.stop_under_load && !all_up().empty()) {
        if (scenario.cluster()) end_faults();
        stop_nodes();
        faults_ = false;
        disk_full_ = false;
        pass(10 * kSecond);  // what was under way lands
    } else {
        quiesce();
        if (!scenario.start_again) return check_states();
    }
    check_states();
    start_all();
    settle();
    final_reads();
    check_cores();
    stop_nodes();
    check_states();
}

Node* World::next_to_tick(Time& at) const {
    Node* next = nullptr;
    at = core::kNever;
    for (const auto& node : nodes_) {
        const Time tick = node->next_tick();
        if (tick >= at) continue;
        at = tick;
        next = node.get();
    }
    return next;
}

void World::run_until(Time limit, const std::function<bool()>& done) {
    while (!done()) {
        Time next = core::kNever;
        (void)next_to_tick(next);
        if (!queue_.empty()) next = std::min(next, queue_.top().at);
        if (next > limit) {
            now_ = std::max(now_, limit);
            return;
        }
        one_event();
    }
}

void World::one_event() {
    if (++steps_ > kStepsMax) broken("the run does not come to an end");
    const Time queued = queue_.empty() ? core::kNever : queue_.top().at;
    Time tick = core::kNever;
    Node* node = next_to_tick(tick);
    if (tick < queued) {
        ticks_in_a_row_ = tick == now_ ? ticks_in_a_row_ + 1 : 0;
        if (ticks_in_a_row_ > kTicksMax) broken("the core asks for ticks without end");
        now_ = tick;
        return node->feed(core::Tick{});
    }
    if (queued > now_) ticks_in_a_row_ = 0;
    now_ = queued;
    const auto what = queue_.top().what;
    queue_.pop();
    what();
}

void World::stepped(const Node& node, std::size_t event) {
    fingerprint_ = mix64(fingerprint_ ^ event ^ static_cast<std::uint64_t>(now_) ^
                         (std::uint64_t{node.number()} << 48U));
}

bool World::wants_stop(const std::string& unit) const {
    return mix64(fnv1a64(unit) ^ seed_) % 100 < scenario.stop_percent;
}

bool World::undisturbed() const {
    return !watch.write_failed() && scenario.runtime_lies == 0 && scenario.runtime_dies == 0 &&
           scenario.kill_every == 0 && scenario.forgets == 0 && leases_last();
}

// Whoever holds a unit and may still act on it.
void World::check_owner(const std::string& unit) const {
    const auto name = core::parse_unit(unit);
    const Node* owner = nullptr;
    for (const auto& node : nodes_) {
        if (!node->up() || node->exited()) continue;
        const core::Unit* known = node->core()->units().find(name->group + "/" + name->name);
        if (known == nullptr || known->hold != core::Hold::Serving) continue;
        if (!node_watch.holds_lease(node->number(), node->boot_now())) continue;
        if (known->record.incarnation != node->core()->incarnation())
            broken(node->name().id + " serves " + unit + " by a hold of its incarnation " +
                   std::to_string(known->record.incarnation));
        if (owner != nullptr)
            broken(unit + " is served by " + owner->name().id + " and by " + node->name().id);
        owner = node.get();
    }
}

void World::add_totals(const core::Stats& stats) {
    totals_.accepted += stats.accepted;
    totals_.commits += stats.commits;
    totals_.commit_unknown += stats.commit_unknown;
    totals_.undone += stats.undone;
    totals_.redelivered += stats.redelivered;
    totals_.bases += stats.bases;
    totals_.loads += stats.loads;
    totals_.fenced += stats.fenced;
    totals_.restarts += stats.restarts;
    totals_.stale_messages += stats.stale_messages;
    totals_.place_invalid += stats.place_invalid;
    totals_.place_late += stats.place_late;
    totals_.poisoned += stats.poisoned;
    totals_.deadline += stats.deadline;
    totals_.evicted += stats.evicted;
    totals_.stops += stats.stops;
    totals_.stops_failed += stats.stops_failed;
}

void World::life_ends(const Node& node) {
    for (auto& [id, command] : commands_) {
        if (command.node == &node && command.life == node.life()) command.done = true;
    }
}

ClusterCounts World::counts() const {
    if (!scenario.cluster()) return {};
    ClusterCounts out;
    out.runs = 1;
    out.asked = network.asked();
    out.unknown = network.unknown();
    out.taken = watch.taken();
    out.fenced = node_watch.fenced();
    out.lapsed = node_watch.lapsed();
    out.refused = refused_;
    return out;
}

}  // namespace hf::sim
