// What operators ask of nodes, as keys in the bucket (protocol 2: control/): the intent is in the key, bodies are empty and
// never read. Listed once in a renewal's period, keys and times only.
//
// A listing that fails changes nothing. A drain ends only when its key was missing from two listings in a row: one listing
// that a store gets wrong must not undrain every node at once.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "agent/core/env.hpp"
#include "agent/core/events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/store_client.hpp"

namespace hf::core {

class Control {
public:
    // Keys of one listing that are looked at, one a node. Beyond it, a line in the log.
    static constexpr std::size_t kKeysMax = 4096;

    // `news`: something changed.
    Control(Env& env, StoreClient& store, std::function<void()> news)
        : env_(env), store_(store), news_(std::move(news)) {}

    // Of a node with a lease; without one there is nobody to go to.
    void open();
    void close();

    [[nodiscard]] bool drains(const std::string& node) const { return drains_.contains(node); }

    // Writes or deletes a node's key, whatever is there; CommandDone follows. The node hears of it from its next listing.
    void ask(const DrainCommand& command);

    void tick();
    [[nodiscard]] Time next_deadline() const;

private:
    void list();
    void listed(StoreAnswer& answer);
    void finish();

    Env& env_;
    StoreClient& store_;
    std::function<void()> news_;
    std::map<std::string, unsigned> drains_;  // by node; listings in a row without its key
    // The listing under way.
    std::set<std::string> seen_;
    std::size_t keys_ = 0;
    std::string after_;
    OpId op_ = 0;
    Time list_at_ = kNever;
    bool open_ = false;
};

}  // namespace hf::core
