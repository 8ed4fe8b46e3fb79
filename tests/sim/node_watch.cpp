#include "tests/sim/node_watch.hpp"

#include "agent/core/keys.hpp"
#include "tests/sim/failure.hpp"

namespace hf::sim {

using core::NodeRecord;
using core::Outcome;

namespace {

std::string text(std::uint64_t number) {
    return std::to_string(number);
}

// What a renewal or a fence may change is told apart; all the rest must stay.
bool same_but_for_the_lease(const core::Codec& codec, NodeRecord a, NodeRecord b) {
    for (NodeRecord* record : {&a, &b}) {
        record->lease_seq = 0;
        record->dead.reset();
        record->state.clear();
    }
    return codec.encode(a) == codec.encode(b);
}

bool dead(const NodeRecord& record) {
    return record.dead && *record.dead >= record.incarnation;
}

}  // namespace

void NodeWatch::introduce(std::size_t number, std::string id, std::string instance) {
    if (nodes_.size() != number) broken("nodes are numbered in order");
    Known& known = nodes_.emplace_back();
    known.id = std::move(id);
    known.instance = std::move(instance);
}

void NodeWatch::new_life(std::size_t node) {
    Known& known = nodes_.at(node);
    known.puts.clear();
    known.own.clear();
    known.incarnation = 0;
    known.leased = false;
    known.first = 0;
}

void NodeWatch::asked(std::size_t node, const core::StoreRequest& request, Time boot) {
    Known& known = nodes_.at(node);
    if (request.verb != core::StoreVerb::Put || request.key != core::key::node(known.id)) return;
    auto record = codec_.decode_node(request.body);
    if (!record) broken(known.id + " writes a record of itself that does not decode");
    known.own.emplace(request.write_id.hi, request.write_id.lo);
    // With its last write it gives up whatever it held, whether or not that is applied.
    if (dead(*record)) known.leased = false;
    known.puts.try_emplace(request.op, Put{std::move(record).value(), boot});
}

bool NodeWatch::told(std::size_t node, const core::StoreAnswer& answer) {
    Known& known = nodes_.at(node);
    const auto it = known.puts.find(answer.op);
    if (it == known.puts.end() || answer.outcome == Outcome::Unknown ||
        answer.outcome == Outcome::Refused)
        return false;
    const Put put = std::move(it->second);
    known.puts.erase(it);
    // What it had under way as an older incarnation says nothing of this one.
    if (put.record.incarnation < known.incarnation) return false;
    const std::uint64_t before = known.incarnation;
    if (answer.outcome == Outcome::Applied) known.incarnation = put.record.incarnation;
    known.leased = answer.outcome == Outcome::Applied && !dead(put.record);
    // From before it was sent, however long the answer took: others count from when they saw it.
    if (known.leased) known.until = put.boot + lease_.ttl - lease_.ttl / 10;
    return known.incarnation != before;
}

bool NodeWatch::holds_lease(std::size_t node, Time boot) const {
    const Known& known = nodes_.at(node);
    return lease_.none() || (known.leased && boot <= known.until);
}

void NodeWatch::must_hold_lease(std::size_t node, Time boot, const std::string& what) const {
    if (holds_lease(node, boot)) return;
    const Known& known = nodes_.at(node);
    broken(known.id + " " + what +
           (known.leased ? " " + text(static_cast<std::uint64_t>(boot - known.until)) +
                               " ns after its lease lapsed"
                         : " and has no lease"));
}

const NodeRecord* NodeWatch::record(const std::string& id) const {
    const auto it = records_.find(id);
    return it == records_.end() ? nullptr : &it->second.record;
}

bool NodeWatch::gone(const std::string& id, std::uint64_t incarnation) const {
    const NodeRecord* now = record(id);
    return now != nullptr &&
           (now->incarnation > incarnation || (now->dead && *now->dead >= incarnation));
}

bool NodeWatch::displaced(std::size_t node) const {
    const NodeRecord* now = record(nodes_.at(node).id);
    return now != nullptr && now->instance != nodes_.at(node).instance;
}

void NodeWatch::written(const std::string& key, const Object& object, std::size_t by) {
    const auto id = core::parse_node_key(key);
    if (!id) return;
    auto decoded = codec_.decode_node(object.body);
    if (!decoded) broken("the record of " + *id + " does not decode");
    const NodeRecord& is = *decoded;
    Known& writer = nodes_.at(by);
    const core::WriteId write = object.write_id;
    const auto was = records_.find(*id);
    const bool itself = writer.id == *id && is.instance == writer.instance;
    if (was == records_.end()) {
        if (!itself) broken("the record of " + *id + " is made by " + writer.id);
        if (writer.own.contains({write.hi, write.lo})) writer.first = is.incarnation;
    } else if (itself) {
        by_itself(writer, was->second, is, write);
    } else {
        by_another(writer, was->second, is);
    }
    records_[*id] = {is, now_()};
}

void NodeWatch::by_itself(Known& node,
                          const Stored& before,
                          const NodeRecord& is,
                          core::WriteId write) {
    const NodeRecord& was = before.record;
    const std::string name = node.id + " incarnation " + text(is.incarnation);
    if (is.incarnation == was.incarnation) {
        if (was.instance != is.instance) broken(name + " is taken by another instance");
        if (dead(was)) broken(name + " goes on with a lease that was ended");
        if (dead(is) ? is.lease_seq < was.lease_seq : is.lease_seq <= was.lease_seq)
            broken(name + " renews its lease as " + text(is.lease_seq) + " after " +
                   text(was.lease_seq));
        if (!same_but_for_the_lease(codec_, was, is)) broken(name + " changes with a renewal");
        return;
    }
    if (is.incarnation != was.incarnation + 1)
        broken(name + " starts after " + text(was.incarnation));
    if (dead(is)) broken(name + " starts dead");
    if (was.instance != is.instance && is.reaped != was.reaped)
        broken(name + " calls another instance's incarnation reaped");
    if (was.instance != is.instance && !dead(was))
        must_have_stood(before, name + " takes the id of another instance");
    // One that was under way when this life began is of the one before.
    if (!node.own.contains({write.hi, write.lo})) return;
    if (node.first == 0) {
        node.first = is.incarnation;
    } else {
        ++lapsed_;
    }
    if (is.reaped >= node.first)
        broken(name + " calls incarnation " + text(is.reaped) +
               " reaped, whose processes may be its own");
}

// Only its end may be written by others, and only when it has been silent for long enough by any clock.
void NodeWatch::by_another(const Known& node, const Stored& was, const NodeRecord& is) {
    const std::string name =
        was.record.id + " incarnation " + text(was.record.incarnation) + ", ended by " + node.id;
    if (!dead(is) || is.incarnation != was.record.incarnation ||
        is.lease_seq != was.record.lease_seq || is.state != was.record.state ||
        !same_but_for_the_lease(codec_, was.record, is))
        broken(name + ": more is written than that");
    if (dead(was.record)) broken(name + ": it was ended before");
    must_have_stood(was, name);
    ++fenced_;
}

// For as long as its lease may last, and what others wait beyond, by the fastest of clocks.
void NodeWatch::must_have_stood(const Stored& record, const std::string& what) const {
    const Time ttl = static_cast<Time>(record.record.ttl_ms) * core::kMs;
    const Time least = (ttl + lease_.grace) / (1'000'000 + kDriftPpm) * 1'000'000;
    const Time stood = now_() - record.since;
    if (stood < least)
        broken(what + ": the record before stood for " +
               text(static_cast<std::uint64_t>(stood / core::kMs)) + " ms only");
}

}  // namespace hf::sim
