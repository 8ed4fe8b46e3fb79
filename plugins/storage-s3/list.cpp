// List: one page of the store's listing, asked for with one key more than wanted, so that whether it goes on is seen and not
// only said. A page that makes no sense is asked for again.
#include "plugins/storage-s3/bucket.hpp"

namespace hf::s3 {
namespace {

// Pages that say that they go on and hold nothing: stores that skip deleted keys make some.
constexpr unsigned kEmptyPagesMax = 8;

class List final : public Operation {
public:
    List(Env& shared, ListCall call, std::function<void(ListResult&)> done)
        : Operation(shared), call_(std::move(call)), done_(std::move(done)) {
        const std::string& before = env().settings.prefix;
        prefix_ = before + call_.prefix;
        if (!call_.after.empty()) after_ = before + call_.after;
        allow_more(kEmptyPagesMax);
    }

protected:
    void begin() override {
        Call call;
        call.method = "GET";
        call.on_bucket = true;
        call.query = {{"list-type", "2"},
                      {"encoding-type", "url"},
                      {"max-keys", std::to_string(call_.limit + 1)},
                      {"prefix", prefix_}};
        if (!token_.empty())
            call.query.emplace_back("continuation-token", token_);
        else if (!after_.empty())
            call.query.emplace_back("start-after", after_);
        call.answer_bytes_max = kXmlBytesMax;
        exchange(std::move(call), [this](Reply& reply) { answered(reply); });
    }
    void give_up(const std::string& reason) override { fail_with(Outcome::Unknown, reason); }

private:
    void answered(Reply& reply) {
        if (reply.verdict == Verdict::Uncertain || reply.verdict == Verdict::NotSent)
            return pause(reply, [this] { begin(); });
        if (reply.verdict != Verdict::Done)
            return fail_with(Outcome::Refused, describe(reply.exchange));
        Result<Listing> listing = read_listing(reply.body, prefix_, after_);
        if (!listing) return again(reply, listing.error().message);
        if (listing->truncated && listing->keys.empty()) {
            if (listing->next_token.empty() || ++empty_pages_ > kEmptyPagesMax)
                return again(reply, "the store's listing goes on and never says how");
            token_ = listing->next_token;
            return begin();
        }
        ListResult result;
        result.outcome = Outcome::Applied;
        result.more = listing->truncated || listing->keys.size() > call_.limit;
        result.keys = std::move(listing->keys);
        if (result.keys.size() > call_.limit) result.keys.resize(call_.limit);
        for (ListedKey& one : result.keys) one.key.erase(0, env().settings.prefix.size());
        result.store_time_ms =
            reply.store_time_ms != 0 ? reply.store_time_ms : env().client.store_now_ms();
        end([&] { done_(result); });
    }
    void again(Reply& reply, const std::string& why) {
        token_.clear();
        empty_pages_ = 0;
        reply.exchange.message = why;
        pause(reply, [this] { begin(); });
    }
    void fail_with(Outcome outcome, const std::string& reason) {
        ListResult result{outcome, {}, false, env().client.store_now_ms(), reason};
        end([&] { done_(result); });
    }

    ListCall call_;
    std::string prefix_;
    std::string after_;
    std::string token_;
    unsigned empty_pages_ = 0;
    std::function<void(ListResult&)> done_;
};

}  // namespace

std::shared_ptr<Operation> make_list(Env& env,
                                     ListCall call,
                                     std::function<void(ListResult&)> done) {
    return std::make_shared<List>(env, std::move(call), std::move(done));
}

}  // namespace hf::s3
