#include "agent/core/lease.hpp"

#include <algorithm>
#include <utility>

#include "agent/core/keys.hpp"

namespace hf::core {

namespace {
// Of ttl, what the lease is taken to be shorter: for clocks that run differently.
constexpr Time kMarginPart = 10;
// A store that refused a renewal is asked again this soon; within a ttl that is several times.
constexpr Time kRenewAgain = 500 * kMs;
}  // namespace

void Lease::begin(NodeRecord record, std::string etag, Time asked) {
    record_ = std::move(record);
    etag_ = std::move(etag);
    begun_ = true;
    resigning_ = false;
    op_ = 0;
    const LeaseSpec& spec = env_.config.lease;
    if (spec.none()) return;
    valid_until_ = asked + spec.ttl - spec.ttl / kMarginPart;
    renew_at_ = asked + spec.renew;
}

void Lease::renew() {
    ++record_.lease_seq;
    const Time asked = env_.lease_now();
    renew_at_ = kNever;
    op_ = store_.put(key::node(env_.config.node_id),
                     env_.codec.encode(record_),
                     Condition::IfMatch,
                     etag_,
                     env_.new_write_id(),
                     [this, asked](StoreAnswer& answer) { renewed(answer, asked); });
}

void Lease::renewed(const StoreAnswer& answer, Time asked) {
    op_ = 0;
    const LeaseSpec& spec = env_.config.lease;
    if (answer.outcome == Outcome::PreconditionFailed || answer.outcome == Outcome::NotFound)
        return lose("its record nodes/" + env_.config.node_id + " was changed by somebody else");
    if (answer.outcome != Outcome::Applied) {
        env_.note(NoteLevel::Warn, "lease", "not renewed: " + answer.reason);
        renew_at_ = env_.lease_now() + std::min(kRenewAgain, spec.renew);
    } else {
        etag_ = answer.etag;
        valid_until_ = asked + spec.ttl - spec.ttl / kMarginPart;
        renew_at_ = asked + spec.renew;
    }
    if (resigning_) return resign();
    if (std::exchange(say_again_, false)) renew();
}

void Lease::say(std::string state) {
    record_.state = std::move(state);
    if (!begun_ || env_.config.lease.none() || resigning_) return;
    if (op_ == 0)
        renew();
    else
        say_again_ = true;
}

void Lease::resign() {
    resigning_ = true;
    if (!begun_ || op_ != 0) return;
    if (env_.config.lease.none()) {
        begun_ = false;
        return;
    }
    record_.dead = record_.incarnation;
    renew_at_ = kNever;
    op_ = store_.put(key::node(env_.config.node_id),
                     env_.codec.encode(record_),
                     Condition::IfMatch,
                     etag_,
                     env_.new_write_id(),
                     [this](StoreAnswer& answer) {
                         op_ = 0;
                         begun_ = false;
                         if (answer.outcome == Outcome::Applied) return;
                         env_.note(NoteLevel::Warn,
                                   "lease",
                                   "others wait until it has run out: the store did not take that "
                                   "this node has stopped: " +
                                       answer.reason);
                     });
}

void Lease::lose(const std::string& why) {
    if (!begun_) return;
    begun_ = false;
    renew_at_ = kNever;
    store_.abandon(std::exchange(op_, 0));
    if (resigning_) return;
    lost_(why);
}

void Lease::tick() {
    if (!begun_ || env_.config.lease.none()) return;
    if (!valid())
        return lose("the lease was not renewed for " + std::to_string(env_.config.lease.ttl / kMs) +
                    " ms");
    if (op_ == 0 && env_.lease_now() >= renew_at_) renew();
}

Time Lease::next_deadline() const {
    if (!begun_ || env_.config.lease.none()) return kNever;
    const Time next = op_ == 0 ? std::min(renew_at_, valid_until_) : valid_until_;
    return std::max<Time>(0, next - env_.slept);
}

Time Lease::left() const {
    if (!begun_ || env_.config.lease.none()) return 0;
    return std::max<Time>(0, valid_until_ - env_.lease_now());
}

}  // namespace hf::core
