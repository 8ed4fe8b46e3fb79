// Put: PutCourse decides, this sends and looks.
#include "plugins/storage-s3/bucket.hpp"
#include "plugins/storage-s3/etag.hpp"

namespace hf::s3 {
namespace {

class Put final : public Operation {
public:
    Put(Env& shared, PutCall call, std::function<void(PutResult&)> done)
        : Operation(shared),
          call_(std::move(call)),
          course_(call_.condition, call_.etag, call_.write_id),
          done_(std::move(done)) {}

protected:
    void begin() override {
        exchange(put_request(env(), call_), [this](Reply& reply) {
            follow(course_.sent(reply.verdict, reply.etag, describe(reply.exchange)), reply);
        });
    }
    void give_up(const std::string& reason) override { finish(course_.given_up(reason)); }

private:
    void look() {
        ++env().counts.looks;
        Call call;
        call.method = "HEAD";
        call.key = call_.key;
        exchange(std::move(call), [this](Reply& reply) {
            follow(course_.looked(
                       {reply.verdict, reply.etag, reply.write_id, describe(reply.exchange)}),
                   reply);
        });
    }
    void follow(PutCourse::Step step, const Reply& last) {
        if (step.next == PutCourse::Next::Answer) return finish(std::move(step.result));
        const auto go = [this, next = step.next] {
            return next == PutCourse::Next::Send ? begin() : look();
        };
        if (step.pause) return pause(last, go);
        go();
    }
    void finish(PutResult result) {
        end([&] { done_(result); });
    }

    PutCall call_;
    PutCourse course_;
    std::function<void(PutResult&)> done_;
};

}  // namespace

Call put_request(const Env& env, const PutCall& put) {
    Call call;
    call.method = "PUT";
    call.key = put.key;
    call.body = put.body;
    call.headers.emplace_back("content-type", "application/octet-stream");
    if (!put.write_id.none()) call.headers.emplace_back(kWriteIdHeader, text_of(put.write_id));
    if (put.condition == Condition::IfAbsent) call.headers.emplace_back("if-none-match", "*");
    if (put.condition == Condition::IfMatch)
        call.headers.emplace_back("if-match", etag_to_wire(put.etag, env.etag_bare));
    return call;
}

std::shared_ptr<Operation> make_put(Env& env, PutCall call, std::function<void(PutResult&)> done) {
    return std::make_shared<Put>(env, std::move(call), std::move(done));
}

}  // namespace hf::s3
