// This node's own record and the lease on it, on which all its holds hang (protocol 3): renewed by conditional writes, counted
// from before each write was sent, and given up for good at the first sign that it is not ours any more.
//
// A record that somebody else changed, or that was not renewed in time, ends the incarnation: nothing is served or written
// under it from that step on, and the node begins anew. Its times count suspend (Env::lease_now).
#pragma once

#include <functional>
#include <string>

#include "agent/core/env.hpp"
#include "agent/core/store_client.hpp"

namespace hf::core {

class Lease {
public:
    // `lost` is called once for each begin() that does not end in resign(): in tick() or from a store's answer.
    Lease(Env& env, StoreClient& store, std::function<void(const std::string& why)> lost)
        : env_(env), store_(store), lost_(std::move(lost)) {}

    // The record is in the store as `record` with this etag; it was sent at `asked`, lease time. Nothing to do for a node
    // without a lease.
    void begin(NodeRecord record, std::string etag, Time asked);
    // Whether what hangs on it may be served at this instant. Without a lease: once begun, always.
    [[nodiscard]] bool valid() const {
        return begun_ && (env_.config.lease.none() || env_.lease_now() < valid_until_);
    }
    // Line 9 of the record; written as soon as may be.
    void say(std::string state);
    // The node has stopped, nothing of it runs or writes any more: its record says so, and whatever it holds may be taken at
    // once. resigned() when that is stored, or nothing can be done.
    void resign();
    [[nodiscard]] bool resigned() const { return !begun_; }

    // Renews, or finds that it has lapsed. Called at the start of each step.
    void tick();
    [[nodiscard]] Time next_deadline() const;

    // Time left; 0 when there is none to be had.
    [[nodiscard]] Time left() const;
    [[nodiscard]] const NodeRecord& record() const { return record_; }

private:
    void renew();
    void renewed(const StoreAnswer& answer, Time asked);
    void lose(const std::string& why);

    Env& env_;
    StoreClient& store_;
    std::function<void(const std::string& why)> lost_;
    NodeRecord record_;
    std::string etag_;
    bool begun_ = false;
    bool resigning_ = false;
    bool say_again_ = false;  // what it says changed while a write was open
    OpId op_ = 0;             // the one write of the record that is open
    Time valid_until_ = 0;
    Time renew_at_ = kNever;
};

}  // namespace hf::core
