#include "agent/core/peers.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "abi/base/hash.hpp"
#include "agent/core/keys.hpp"

namespace hf::core {

namespace {
constexpr std::uint32_t kListPage = 256;
}  // namespace

std::string rendezvous(std::string_view subject, const std::vector<std::string>& names) {
    std::string best;
    std::uint64_t best_score = 0;
    for (const std::string& name : names) {
        const std::uint64_t score = mix64(fnv1a64(name, fnv1a64(subject)));
        if (best.empty() || score > best_score) {
            best = name;
            best_score = score;
        }
    }
    return best;
}

void Peers::open() {
    if (env_.config.lease.none()) return;
    open_ = true;
    list();
}

void Peers::close() {
    open_ = false;
    store_.abandon(std::exchange(list_op_, 0));
    for (auto& [id, peer] : peers_) store_.abandon(std::exchange(peer.op, 0));
    peers_.clear();  // what is remembered of them is too old when the node comes back
    listing_.clear();
    reads_open_ = 0;
    poll_at_ = kNever;
}

Peers::Standing Peers::standing(const std::string& node, std::uint64_t incarnation) const {
    const auto it = peers_.find(node);
    if (it == peers_.end() || !it->second.readable) return Standing::Unknown;
    const NodeRecord& record = it->second.record;
    if (record.incarnation > incarnation) return Standing::Gone;  // it has begun anew
    if (record.dead && *record.dead >= incarnation) return Standing::Gone;
    return record.incarnation == incarnation ? Standing::Alive : Standing::Unknown;
}

std::string Peers::address_of(const std::string& node) const {
    const auto it = peers_.find(node);
    return it == peers_.end() ? std::string() : it->second.record.peer_address();
}

std::vector<std::string> Peers::living() const {
    std::vector<std::string> out{env_.config.node_id};
    for (const auto& [id, peer] : peers_) {
        if (peer.readable && !is_dead(peer) && peer.record.app == env_.config.app &&
            peer.record.incarnation != 0)
            out.push_back(id);
    }
    std::sort(out.begin(), out.end());
    return out;
}

// --- watching ------------------------------------------------------------------------------------------------------------

void Peers::list() {
    poll_at_ = kNever;
    list_op_ = store_.list(
        key::nodes_prefix(), after_, kListPage, [this](StoreAnswer& answer) { listed(answer); });
}

void Peers::listed(StoreAnswer& answer) {
    list_op_ = 0;
    if (answer.outcome != Outcome::Applied || (answer.more && answer.objects.empty())) {
        env_.note(NoteLevel::Warn,
                  "peers",
                  "the nodes cannot be listed: " +
                      (answer.reason.empty() ? "there are more, and nothing came" : answer.reason));
        after_.clear();
        listing_.clear();
        poll_at_ = env_.lease_now() + env_.config.lease.poll;
        return;
    }
    std::vector<std::string> changed;
    for (const ObjectInfo& object : answer.objects) {
        after_ = object.key;
        const auto id = parse_node_key(object.key);
        if (!id || *id == env_.config.node_id) continue;
        const auto known = peers_.find(*id);
        if (known == peers_.end() && peers_.size() >= kPeersMax) {
            if (!std::exchange(cut_, true))
                env_.note(NoteLevel::Error,
                          "peers",
                          "there are more nodes on this bucket than " + std::to_string(kPeersMax));
            continue;
        }
        listing_.insert(*id);
        if (known == peers_.end() || known->second.etag != object.etag) changed.push_back(*id);
    }
    for (const std::string& id : changed) read(id);
    if (answer.more) return list();
    after_.clear();
    std::erase_if(peers_, [&](const auto& one) {
        return !listing_.contains(one.first) && one.second.op == 0;
    });
    listing_.clear();
    poll_at_ = env_.lease_now() + env_.config.lease.poll;
    if (reads_open_ == 0) settled();
}

void Peers::read(const std::string& node) {
    Peer& peer = peers_[node];
    if (peer.op != 0) return;
    ++reads_open_;
    peer.op =
        store_.get(key::node(node), [this, node](StoreAnswer& answer) { was_read(node, answer); });
}

// One record that cannot be read spoils nothing but itself.
void Peers::was_read(const std::string& node, StoreAnswer& answer) {
    Peer& peer = peers_[node];
    peer.op = 0;
    if (answer.outcome == Outcome::Applied && answer.etag != peer.etag) {
        auto record = env_.codec.decode_node(answer.body);
        const bool good = record && record->id == node;
        if (!good)
            env_.note(NoteLevel::Warn,
                      "peers",
                      "the record of node " + node + " cannot be read: " +
                          (record ? "it names node " + record->id : record.error().message));
        peer.readable = good;
        peer.record = good ? std::move(record).value() : NodeRecord{};
        peer.etag = answer.etag;
        peer.since = env_.lease_now();
    } else if (answer.outcome == Outcome::NotFound) {
        peers_.erase(node);
    } else if (answer.outcome != Outcome::Applied) {
        env_.note(NoteLevel::Warn, "peers", "node " + node + " cannot be read: " + answer.reason);
        if (peer.etag.empty()) peers_.erase(node);
    }
    if (--reads_open_ == 0) settled();
}

// What was asked for is here.
void Peers::settled() {
    bury_silent();
    news_();
}

void Peers::look(const std::string& node, std::uint64_t incarnation) {
    if (!open_) return;
    const auto known = peers_.find(node);
    Peer& peer = known == peers_.end() ? peers_[node] : known->second;
    peer.wanted = std::max(peer.wanted, incarnation);
    if (peer.op != 0) return;                  // news are on their way
    if (!peer.readable) return bury_silent();  // as soon as it has stood still
    ++reads_open_;
    peer.op = store_.get(key::node(node), [this, node](StoreAnswer& answer) {
        if (answer.outcome != Outcome::NotFound) return was_read(node, answer);
        --reads_open_;
        Peer& absent = peers_[node];
        absent.op = 0;
        absent.etag.clear();
        absent.readable = false;
        bury(node, absent, absent.wanted);
    });
}

// --- the dead ------------------------------------------------------------------------------------------------------------

Time Peers::silent_at(const Peer& peer) const {
    const Time said = static_cast<Time>(
        std::min<std::uint64_t>(peer.record.ttl_ms, static_cast<std::uint64_t>(kNever / kMs / 4)));
    const Time ttl = said == 0 ? env_.config.lease.ttl : said * kMs;
    return peer.since + ttl + env_.config.lease.grace;
}

bool Peers::is_silent(const std::string& node) const {
    const auto it = peers_.find(node);
    return it == peers_.end() ||
           silent_at(it->second) - env_.config.lease.grace <= env_.lease_now();
}

void Peers::bury_silent() {
    for (auto& [id, peer] : peers_) {
        if (peer.op != 0 || peer.etag.empty() || is_dead(peer) ||
            silent_at(peer) > env_.lease_now())
            continue;
        // Of one that cannot be read nothing is known, and nothing is done before somebody asks.
        if (!peer.readable && peer.wanted == 0) continue;
        bury(id, peer, peer.readable ? peer.record.incarnation : peer.wanted);
    }
}

// From here on that incarnation can renew no more.
void Peers::bury(const std::string& node, Peer& peer, std::uint64_t incarnation) {
    NodeRecord record = peer.record;
    record.id = node;
    record.incarnation = incarnation;
    record.dead = incarnation;
    const bool absent = peer.etag.empty();
    if (!peer.readable || absent) {
        // What it was nobody can tell; it begins above this incarnation when it comes back.
        record.app = env_.config.app;
        record.tenant = env_.config.tenant;
    }
    env_.note(NoteLevel::Warn,
              "peers",
              "node " + node + ", incarnation " + std::to_string(incarnation) +
                  (absent ? ", has no record" : ", has not renewed its lease") +
                  ": it is recorded as dead, and what it holds may be taken");
    peer.op = store_.put(key::node(node),
                         env_.codec.encode(record),
                         absent ? Condition::IfAbsent : Condition::IfMatch,
                         peer.etag,
                         env_.new_write_id(),
                         [this, node, record](StoreAnswer& answer) {
                             Peer& known = peers_[node];
                             known.op = 0;
                             if (answer.outcome == Outcome::Applied) {
                                 known.record = record;
                                 known.readable = true;
                                 known.etag = answer.etag;
                                 known.since = env_.lease_now();
                                 return news_();
                             }
                             // It renews after all, or another node was faster.
                             if (answer.outcome == Outcome::PreconditionFailed) return read(node);
                             if (known.etag.empty()) peers_.erase(node);
                             news_();
                         });
}

void Peers::tick() {
    if (!open_) return;
    if (poll_at_ <= env_.lease_now()) list();
}

Time Peers::next_deadline() const {
    if (!open_ || poll_at_ == kNever) return kNever;
    return std::max<Time>(0, poll_at_ - env_.slept);
}

}  // namespace hf::core
