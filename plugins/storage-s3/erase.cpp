// Delete. S3 answers 204 whether there was something or not, and the contract wants to know: keys are looked at until one is
// found, then all are deleted, several at once. To delete again what may be deleted already is harmless, so all that is
// uncertain is simply repeated. A key is gone when the store said so after the request; one that was not found when it was
// looked for was gone then.
#include <algorithm>

#include "plugins/storage-s3/bucket.hpp"
#include "plugins/storage-s3/etag.hpp"

namespace hf::s3 {
namespace {

class Erase final : public Operation {
public:
    Erase(Env& shared, DeleteCall call, std::function<void(DeleteResult&)> done)
        : Operation(shared), call_(std::move(call)), done_(std::move(done)) {
        keys_.push_back(call_.key);
        keys_.insert(keys_.end(), call_.also.begin(), call_.also.end());
        // Each key is looked at and deleted.
        allow_more(2 * env().settings.attempts_max * keys_.size());
    }

protected:
    void begin() override { look_at_more(); }
    void give_up(const std::string& reason) override { finish({Outcome::Unknown, reason}); }

private:
    // One first, which is nearly always there; then many at once.
    void look_at_more() {
        const std::size_t count = std::min(next_ == 0 ? 1 : kDeletesAtOnce, keys_.size() - next_);
        if (count == 0) return finish({Outcome::NotFound, {}});
        waiting_for_ = count;
        for (std::size_t i = 0; i < count; ++i) look(next_ + i);
        next_ += count;
    }
    void look(std::size_t index) {
        Call call;
        call.method = "HEAD";
        call.key = keys_[index];
        exchange(std::move(call), [this, index](Reply& reply) { looked(index, reply); });
    }
    void looked(std::size_t index, const Reply& reply) {
        if (unclear(reply)) return pause(reply, [this, index] { look(index); });
        if (reply.verdict == Verdict::Done) {
            found_ = true;
            if (index == 0 && call_.condition == Condition::IfMatch && reply.etag != call_.etag)
                return finish({Outcome::PreconditionFailed, {}});
        } else if (reply.verdict != Verdict::Missing) {
            return finish({Outcome::Refused, describe(reply.exchange)});
        } else if (index == 0 && call_.condition == Condition::IfMatch) {
            // Nothing of it is there; the other keys do not hang on the condition, nor on this one.
            call_.condition = Condition::None;
        }
        if (--waiting_for_ != 0) return;
        if (!found_) return look_at_more();
        next_ = 0;
        delete_more();
    }

    void delete_more() {
        while (next_ < keys_.size() && waiting_for_ < kDeletesAtOnce) {
            ++waiting_for_;
            erase(next_++);
        }
        if (waiting_for_ == 0) finish({Outcome::Applied, {}});
    }
    void erase(std::size_t index) {
        Call call;
        call.method = "DELETE";
        call.key = keys_[index];
        if (index == 0 && call_.condition == Condition::IfMatch)
            call.headers.emplace_back("if-match", etag_to_wire(call_.etag, env().etag_bare));
        exchange(std::move(call), [this, index](Reply& reply) { erased(index, reply); });
    }
    void erased(std::size_t index, const Reply& reply) {
        if (unclear(reply)) {
            tried_again_ = true;
            return pause(reply, [this, index] { erase(index); });
        }
        if (reply.verdict == Verdict::Precondition)
            // Changed since it was looked at; or, when it was tried before, gone by our own hand.
            return finish(tried_again_ ? DeleteResult{Outcome::Unknown, describe(reply.exchange)}
                                       : DeleteResult{Outcome::PreconditionFailed, {}});
        if (reply.verdict != Verdict::Done && reply.verdict != Verdict::Missing)
            return finish({Outcome::Refused, describe(reply.exchange)});
        --waiting_for_;
        delete_more();
    }

    static bool unclear(const Reply& reply) {
        return reply.verdict == Verdict::Uncertain || reply.verdict == Verdict::NotSent;
    }
    void finish(DeleteResult result) {
        end([&] { done_(result); });
    }

    DeleteCall call_;
    std::vector<std::string> keys_;
    std::size_t next_ = 0;         // first key that was not begun with
    std::size_t waiting_for_ = 0;  // keys that were begun with and are not decided
    bool found_ = false;
    bool tried_again_ = false;
    std::function<void(DeleteResult&)> done_;
};

}  // namespace

std::shared_ptr<Operation> make_erase(Env& env,
                                      DeleteCall call,
                                      std::function<void(DeleteResult&)> done) {
    return std::make_shared<Erase>(env, std::move(call), std::move(done));
}

}  // namespace hf::s3
