// Get: one request, repeated until the store says something that decides.
#include "abi/base/limits.hpp"
#include "plugins/storage-s3/bucket.hpp"

namespace hf::s3 {
namespace {

class Get final : public Operation {
public:
    Get(Env& shared, std::string key, std::function<void(GetResult&)> done)
        : Operation(shared), key_(std::move(key)), done_(std::move(done)) {}

protected:
    void begin() override {
        Call call;
        call.method = "GET";
        call.key = key_;
        call.answer_bytes_max = kObjectBytesMax;
        exchange(std::move(call), [this](Reply& reply) { answered(reply); });
    }
    void give_up(const std::string& reason) override {
        finish({Outcome::Unknown, {}, {}, {}, reason});
    }

private:
    void answered(Reply& reply) {
        switch (reply.verdict) {
            case Verdict::Done:
                if (reply.too_large)
                    return finish({Outcome::Refused,
                                   {},
                                   {},
                                   {},
                                   "the object is larger than kObjectBytesMax (" +
                                       std::to_string(kObjectBytesMax) + "): no node wrote it"});
                return finish({Outcome::Applied,
                               std::move(reply.body),
                               std::move(reply.etag),
                               reply.write_id,
                               {}});
            case Verdict::Missing:
                return finish({Outcome::NotFound, {}, {}, {}, {}});
            case Verdict::NotSent:
            case Verdict::Uncertain:
                return pause(reply, [this] { begin(); });
            default:
                return finish({Outcome::Refused, {}, {}, {}, describe(reply.exchange)});
        }
    }
    void finish(GetResult result) {
        end([&] { done_(result); });
    }

    std::string key_;
    std::function<void(GetResult&)> done_;
};

}  // namespace

std::shared_ptr<Operation> make_get(Env& env,
                                    std::string key,
                                    std::function<void(GetResult&)> done) {
    return std::make_shared<Get>(env, std::move(key), std::move(done));
}

}  // namespace hf::s3
