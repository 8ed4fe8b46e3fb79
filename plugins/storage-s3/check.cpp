#include "plugins/storage-s3/check.hpp"

#include <algorithm>
#include <utility>

#include "plugins/storage-s3/etag.hpp"

namespace hf::s3 {
namespace {

// Writers at once: a store that checks first and writes then lets several of them through nearly always.
constexpr std::size_t kRunners = 8;
// A page of somebody else's instead of a listing, so often in a row, is no accident.
constexpr unsigned kGarbledMax = 5;

std::string quoted(const std::string& text) {
    return '"' + text + '"';
}

}  // namespace

StartCheck::StartCheck(Env& env, std::function<void()> decided)
    : env_(env), decided_(std::move(decided)) {}

StartCheck::~StartCheck() {
    for (const Http::Id id : open_) env_.client.cancel(id);
    env_.loop.cancel(timer_);
}

void StartCheck::begin() {
    const std::string name =
        std::string(kProbePrefix) + text_of({env_.random(), env_.random() | 1U});
    alone_ = name + "-a";
    raced_ = name + "-b";
    missing_ = name + "-c";
    tried_bare_ = false;
    races_ = 0;
    env_.etag_bare = env_.settings.etag_form == EtagForm::Bare;
    env_.conditional_deletes = false;
    at_ = 0;
    steps_ = {list_bucket(),
              create(false),
              create(true),
              replace_current(),
              replace_stale(),
              replace_missing(),
              read_back("GET"),
              read_back("HEAD"),
              list_back(),
              {},  // the race of creators
              {},  // the race of replacements
              delete_stale(),
              remove(alone_),
              remove(raced_)};
    run_step();
}

std::string StartCheck::where() const {
    return "bucket " + quoted(env_.settings.bucket) + " at " + env_.settings.endpoint.text();
}

Call StartCheck::write(const std::string& key, Condition condition, const std::string& etag) {
    last_ = {key,
             "holdfast looks whether this store can be used: " + text_of({env_.random(), 1}),
             condition,
             etag,
             {env_.random(), env_.random() | 1U}};
    return put_request(env_, last_);
}

StartCheck::Step StartCheck::list_bucket() {
    return {[this] {
                Call call;
                call.method = "GET";
                call.on_bucket = true;
                call.query = {{"list-type", "2"},
                              {"encoding-type", "url"},
                              {"max-keys", "1"},
                              {"prefix", env_.settings.prefix + std::string(kProbePrefix)}};
                call.answer_bytes_max = kXmlBytesMax;
                return call;
            },
            [](const Reply&) { return std::string(); },
            true,
            true};
}

StartCheck::Step StartCheck::create(bool again) {
    return {[this] { return write(alone_, Condition::IfAbsent, {}); },
            [this, again](const Reply& reply) -> std::string {
                if (!again) {
                    if (reply.verdict != Verdict::Done)
                        return "it answers " + describe(reply.exchange) +
                               " to a write with If-None-Match: * of a key that is not there";
                    etag_ = reply.etag;
                    return etag_.empty() ? "it gives no ETag for what was written" : "";
                }
                if (reply.verdict == Verdict::Precondition) return {};
                return "it answers " + describe(reply.exchange) +
                       " to a write with If-None-Match: * of a key that is there, instead of 412: "
                       "it does not honour the condition";
            },
            again};
}

StartCheck::Step StartCheck::replace_current() {
    return {[this] { return write(alone_, Condition::IfMatch, etag_); },
            [this](const Reply& reply) -> std::string {
                if (reply.verdict == Verdict::Done) {
                    etag_before_ = std::exchange(etag_, reply.etag);
                    return {};
                }
                if (reply.verdict == Verdict::Precondition && !tried_bare_ &&
                    env_.settings.etag_form == EtagForm::Auto) {
                    tried_bare_ = env_.etag_bare = true;
                    --at_;  // the same once more
                    return {};
                }
                return "it answers " + describe(reply.exchange) +
                       " to a write with If-Match and the right ETag" +
                       (env_.settings.etag_form == EtagForm::Auto
                            ? ", quoted or not"
                            : "; etag_form = \"auto\" finds out which form it wants");
            },
            false};
}

StartCheck::Step StartCheck::replace_stale() {
    return {[this] {
                const PutCall kept = last_;
                Call call = write(alone_, Condition::IfMatch, etag_before_);
                last_ = kept;  // what must still be there
                return call;
            },
            [](const Reply& reply) -> std::string {
                if (reply.verdict == Verdict::Precondition) return {};
                return "it answers " + describe(reply.exchange) +
                       " to a write with If-Match and an old ETag, instead of 412: it does not "
                       "honour the condition";
            }};
}

StartCheck::Step StartCheck::replace_missing() {
    return {[this] {
                const PutCall kept = last_;
                Call call = write(missing_, Condition::IfMatch, etag_before_);
                last_ = kept;
                return call;
            },
            [](const Reply& reply) -> std::string {
                if (reply.verdict == Verdict::Precondition || reply.verdict == Verdict::Missing)
                    return {};
                return "it answers " + describe(reply.exchange) +
                       " to a write with If-Match of a key that is not there, instead of 404 or "
                       "412";
            }};
}

StartCheck::Step StartCheck::read_back(const char* method) {
    return {[this, method] {
                Call call;
                call.method = method;
                call.key = alone_;
                return call;
            },
            [this, method = std::string(method)](const Reply& reply) -> std::string {
                if (reply.verdict != Verdict::Done)
                    return method + " of what was just written is answered " +
                           describe(reply.exchange);
                if (method == "GET" && reply.body != last_.body)
                    return "it gives back other bytes than were written";
                if (reply.write_id != last_.write_id)
                    return "it does not keep the metadata " + std::string(kWriteIdHeader) +
                           " of an object";
                if (reply.etag != etag_) return method + " gives another ETag than the write did";
                return {};
            }};
}

StartCheck::Step StartCheck::list_back() {
    return {[this] {
                Call call;
                call.method = "GET";
                call.on_bucket = true;
                call.query = {{"list-type", "2"},
                              {"encoding-type", "url"},
                              {"max-keys", "2"},
                              {"prefix", env_.settings.prefix + alone_}};
                call.answer_bytes_max = kXmlBytesMax;
                return call;
            },
            [this](const Reply& reply) -> std::string {
                if (reply.verdict != Verdict::Done)
                    return "a listing is answered " + describe(reply.exchange);
                const auto listing = read_listing(reply.body, env_.settings.prefix + alone_, {});
                if (!listing) return listing.error().message;
                if (listing->keys.size() != 1 || listing->keys[0].etag != etag_)
                    return "its listing does not show what was just written";
                return {};
            },
            true,
            true};
}

StartCheck::Step StartCheck::delete_stale() {
    return {[this] {
                Call call;
                call.method = "DELETE";
                call.key = alone_;
                call.headers.emplace_back("if-match", etag_to_wire(etag_before_, env_.etag_bare));
                return call;
            },
            [this](const Reply& reply) -> std::string {
                // Nothing hangs on it: a store without is asked for no such delete.
                env_.conditional_deletes = reply.verdict == Verdict::Precondition;
                return {};
            }};
}

StartCheck::Step StartCheck::remove(std::string key) {
    return {[key = std::move(key)] {
                Call call;
                call.method = "DELETE";
                call.key = key;
                return call;
            },
            [](const Reply& reply) -> std::string {
                if (reply.verdict == Verdict::Done || reply.verdict == Verdict::Missing) return {};
                return "a delete is answered " + describe(reply.exchange);
            }};
}

// --- the course ------------------------------------------------------------------------------------------------------

void StartCheck::send(Call call, std::function<void(const Reply&)> done) {
    call.timeout_ms = env_.settings.attempt_timeout_ms;
    ++env_.counts.requests;
    const auto id = std::make_shared<Http::Id>();
    *id = env_.client.send(std::move(call), [this, id, done = std::move(done)](Reply& reply) {
        std::erase(open_, *id);
        done(reply);
    });
    open_.push_back(*id);
}

void StartCheck::run_step() {
    if (at_ == steps_.size()) {
        state_ = State::Good;
        trouble_.clear();
        return decided_();
    }
    const Step& step = steps_[at_];
    if (!step.ask) return race(races_ == 0 ? Condition::IfAbsent : Condition::IfMatch);
    send(step.ask(), [this](const Reply& reply) { step_answered(reply); });
}

void StartCheck::step_answered(const Reply& reply) {
    switch (reply.verdict) {
        case Verdict::NotSent:
        case Verdict::Uncertain:
            if (!steps_[at_].again) return start_over(reply);
            return later(reply, [this] { run_step(); });
        case Verdict::Skewed:
            if (std::exchange(clock_corrected_, true)) return refuse(explain(reply));
            return run_step();
        default:
            break;
    }
    // The first one is about access alone: whatever it says is meant for all.
    const bool access = at_ == 0;
    const bool denied = reply.exchange.status == 401 || reply.exchange.status == 403;
    if ((access && reply.verdict != Verdict::Done) || denied) return refuse(explain(reply));
    const Step& step = steps_[at_];
    if (step.listing && reply.verdict == Verdict::Done && !read_listing(reply.body, {}, {})) {
        if (++garbled_ < kGarbledMax) return later(reply, [this] { run_step(); });
        return refuse(env_.settings.endpoint.text() +
                      " does not answer as S3 does: look at plugin.storage.endpoint");
    }
    failed_ = garbled_ = 0;
    unreached_ = false;
    const std::string wrong = step.judge(reply);
    if (!wrong.empty()) return refuse(where() + " cannot keep actors: " + wrong);
    next();
}

void StartCheck::next() {
    ++at_;
    clock_corrected_ = false;
    run_step();
}

void StartCheck::race(Condition condition) {
    ++races_;
    runners_.assign(kRunners, {});
    running_ = kRunners;
    for (std::size_t i = 0; i < kRunners; ++i) {
        Call call = write(raced_, condition, raced_etag_);
        runners_[i].write_id = last_.write_id;
        send(std::move(call), [this, i](const Reply& reply) { race_answered(i, reply); });
    }
}

void StartCheck::race_answered(std::size_t runner, const Reply& reply) {
    if (reply.verdict == Verdict::Done) runners_[runner].won = true;
    if (--running_ != 0) return;
    const auto winners =
        std::count_if(runners_.begin(), runners_.end(), [](const Runner& one) { return one.won; });
    if (winners > 1)
        return refuse(where() + " cannot keep actors: of " + std::to_string(kRunners) +
                      " writes at once with " +
                      (races_ == 1 ? "If-None-Match: *" : "If-Match and one ETag") + ", " +
                      std::to_string(winners) +
                      " were answered as done: its conditional writes are not atomic");
    look_at_winner();
}

void StartCheck::look_at_winner() {
    Call call;
    call.method = "HEAD";
    call.key = raced_;
    send(std::move(call), [this](const Reply& reply) { winner_seen(reply); });
}

void StartCheck::winner_seen(const Reply& reply) {
    if (reply.verdict == Verdict::NotSent || reply.verdict == Verdict::Uncertain)
        return later(reply, [this] { look_at_winner(); });
    if (reply.verdict != Verdict::Done) return start_over(reply);
    const auto there = std::find_if(runners_.begin(), runners_.end(), [&](const Runner& one) {
        return one.write_id == reply.write_id;
    });
    const bool won =
        std::any_of(runners_.begin(), runners_.end(), [](const Runner& one) { return one.won; });
    // Whose answer was lost may have won; who was told so must have.
    if (there == runners_.end() && !won) return start_over(reply);
    if (won && (there == runners_.end() || !there->won))
        return refuse(where() +
                      " cannot keep actors: a write that it said was done is not there; "
                      "its conditional writes are not atomic");
    raced_etag_ = reply.etag;
    next();
}

void StartCheck::later(const Reply& reply, std::function<void()> fn) {
    for (const Http::Id id : std::exchange(open_, {})) env_.client.cancel(id);
    trouble_ = where() + " cannot be used yet: " + describe(reply.exchange);
    unreached_ = reply.verdict == Verdict::NotSent;
    env_.loop.cancel(timer_);
    timer_ = env_.loop.after(pause_ms(++failed_, env_.random()), [this, fn = std::move(fn)] {
        timer_ = 0;
        fn();
    });
}

void StartCheck::start_over(const Reply& reply) {
    later(reply, [this] { begin(); });
}

void StartCheck::refuse(const std::string& why) {
    for (const Http::Id id : std::exchange(open_, {})) env_.client.cancel(id);
    state_ = State::Refused;
    trouble_ = why;
    decided_();
}

std::string StartCheck::explain(const Reply& reply) const {
    const std::string& code = reply.exchange.code;
    const std::string said = " (" + describe(reply.exchange) + ")";
    const std::string endpoint = env_.settings.endpoint.text();
    if (code == "NoSuchBucket" || (reply.exchange.status == 404 && code.empty()))
        return "there is no " + where() + said +
               ": make it, or name another one as plugin.storage.bucket";
    if (code == "RequestTimeTooSkewed")
        return endpoint + " says that this machine's clock is wrong" + said + ": set it";
    if (code == "AuthorizationHeaderMalformed" || code == "PermanentRedirect" ||
        code == "TemporaryRedirect" || reply.exchange.status == 301 || reply.exchange.status == 307)
        return where() + " is in another region or at another endpoint" + said +
               (reply.error.region.empty()
                    ? ": set plugin.storage.region and endpoint"
                    : ": set plugin.storage.region = " + quoted(reply.error.region)) +
               (reply.error.endpoint.empty() ? ""
                                             : "; it names the endpoint " + reply.error.endpoint);
    if (code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch" || code == "InvalidToken" ||
        code == "ExpiredToken" || code == "InvalidSecurity")
        return endpoint + " refuses the credentials" + said +
               ": look at plugin.storage.credentials_file, its profile and AWS_ACCESS_KEY_ID";
    if (reply.exchange.status == 401 || reply.exchange.status == 403)
        return where() + " denies access" + said +
               ": the key needs to list the bucket, and to read, write and delete objects below " +
               quoted(env_.settings.prefix);
    return where() + " cannot be used" + said;
}

}  // namespace hf::s3
