// The other nodes on this bucket, as their records say (protocol 3; R4 of the safety rules): who lives, who is known to be
// dead, where they are reached. Knows nothing of units.
//
// A node is dead when its record says so. Its record is made to say so, by a conditional write, when it has not changed for
// its ttl and our grace on our own clock; that write fails when the node renews after all, and a renewal that comes later
// fails instead. Only then what it held may be taken. A record that is not there, or that nobody can read, is treated as
// one that stands still.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/env.hpp"
#include "agent/core/store_client.hpp"

namespace hf::core {

// Of `names` the one with the highest hash together with `subject`: everybody who knows the same names chooses the same,
// and one that goes or comes moves only what is its own. Empty: there are none.
[[nodiscard]] std::string rendezvous(std::string_view subject, const std::vector<std::string>& names);

class Peers {
public:
    // Records in memory. Beyond it a listing is cut, with a line in the log; a node is never asked about one of those.
    static constexpr std::size_t kPeersMax = 1024;

    enum class Standing : std::uint8_t {
        Alive,   // as far as its record says
        Gone,    // that incarnation is dead
        Unknown  // our knowledge is older than the question: look()
    };
    struct Peer {
        NodeRecord record;
        std::string etag;
        Time since = 0;        // lease time at which this etag was first seen
        bool readable = true;  // otherwise the record holds only the id
        std::uint64_t wanted = 0;  // highest incarnation asked about while it could not be read
        OpId op = 0;           // its record is being read, or written by us
    };

    // `news`: the standing of some node may have changed.
    Peers(Env& env, StoreClient& store, std::function<void()> news)
        : env_(env), store_(store), news_(std::move(news)) {}

    // From here on others are watched; of a node without a lease there are none.
    void open();
    void close();

    [[nodiscard]] Standing standing(const std::string& node, std::uint64_t incarnation) const;
    // Reads the record of a node whose standing is unknown; news follow.
    void look(const std::string& node, std::uint64_t incarnation);
    // host:port; empty: not known.
    [[nodiscard]] std::string address_of(const std::string& node) const;
    // As far as its record is known; 0: not.
    [[nodiscard]] std::uint64_t incarnation_of(const std::string& node) const {
        const auto it = peers_.find(node);
        return it == peers_.end() ? 0 : it->second.record.incarnation;
    }
    // It has not renewed for as long as its lease lasts: nothing is given to it.
    [[nodiscard]] bool is_silent(const std::string& node) const;
    [[nodiscard]] const std::map<std::string, Peer>& all() const { return peers_; }
    // Nodes of this app that live, by id, this one included: for what is shared out among them.
    [[nodiscard]] std::vector<std::string> living() const;

    void tick();
    [[nodiscard]] Time next_deadline() const;

private:
    void list();
    void listed(StoreAnswer& answer);
    void read(const std::string& node);
    void was_read(const std::string& node, StoreAnswer& answer);
    void settled();
    void bury(const std::string& node, Peer& peer, std::uint64_t incarnation);
    void bury_silent();
    [[nodiscard]] Time silent_at(const Peer& peer) const;
    [[nodiscard]] bool is_dead(const Peer& peer) const {
        return peer.readable && peer.record.dead && *peer.record.dead >= peer.record.incarnation;
    }

    Env& env_;
    StoreClient& store_;
    std::function<void()> news_;
    std::map<std::string, Peer> peers_;
    std::set<std::string> listing_;  // ids of the listing under way
    std::string after_;
    std::size_t reads_open_ = 0;
    OpId list_op_ = 0;
    Time poll_at_ = kNever;
    bool open_ = false;
    bool cut_ = false;  // told that a listing is too long
};

}  // namespace hf::core
