// One thing asked of the bucket, from its first request to its answer: a time, a number of tries, pauses between them.
// Responsible for that each operation ends by its time whatever the store does, and that nothing of it is left running then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "plugins/http-client/loop.hpp"
#include "plugins/storage-s3/backoff.hpp"
#include "plugins/storage-s3/client.hpp"

namespace hf::s3 {

using web::Loop;

struct Counts {
    std::uint64_t puts = 0, gets = 0, lists = 0, deletes = 0, refused = 0, unknown = 0;
    std::uint64_t requests = 0;  // HTTP, all of them
    std::uint64_t repeated = 0;  // after a pause
    std::uint64_t looks = 0;     // at what a put left behind
};

// What all operations share. Everything must outlive them.
struct Env {
    Loop& loop;
    Client& client;
    const Settings& settings;
    RetryBudget budget = {};
    std::mt19937_64 random{std::random_device{}()};
    Counts counts = {};
    bool etag_bare = false;            // how If-Match wants its tag; the start check finds out
    bool conditional_deletes = false;  // the store honours If-Match of a DELETE
};

class Operation : public std::enable_shared_from_this<Operation> {
public:
    using Ended = std::function<void()>;

    explicit Operation(Env& env) : env_(env), tries_allowed_(env.settings.attempts_max) {}
    virtual ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // `ended` lets go of it; called before the answer is given.
    void start(Ended ended);
    // Ends it without an answer: nobody is left to hear it.
    void abandon() { stop(); }

protected:
    virtual void begin() = 0;
    // Time or tries are used up: answer Unknown. Ends with end().
    virtual void give_up(const std::string& reason) = 0;

    // One request within the time and the tries that are left; none left: give_up. `done` may start the next.
    void exchange(Call call, std::function<void(Reply&)> done);
    // After a pause, `fn`; or give_up.
    void pause(const Reply& last, std::function<void()> fn);
    // Nothing of it runs any more; `answer` is the last thing it does.
    void end(const std::function<void()>& answer);
    // Requests that a larger operation has beside attempts_max.
    void allow_more(std::size_t tries) { tries_allowed_ += tries; }
    [[nodiscard]] bool ended() const { return ended_flag_; }
    [[nodiscard]] Env& env() { return env_; }

private:
    void stop();

    Env& env_;
    Ended ended_;
    bool ended_flag_ = false;
    bool clock_corrected_ = false;
    std::size_t tries_ = 0;
    std::size_t tries_allowed_;
    unsigned pauses_ = 0;  // since something was done
    std::int64_t deadline_ns_ = 0;
    std::string last_trouble_;
    std::set<Http::Id> open_;
    Loop::TimerId deadline_ = 0;
    std::set<Loop::TimerId> timers_;
};

}  // namespace hf::s3
