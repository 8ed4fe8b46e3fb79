// May this store be used? Tried out at every start, on keys below <prefix>.probe/ that are deleted again: access, conditional
// writes one by one and in a race, whether what was written is read and listed with its write id, and which form of entity tag
// the store compares. Responsible for a sentence that says which step failed and what to do. What cannot be decided (no
// connection, errors of the store) is tried again for ever; who waits sees trouble().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plugins/storage-s3/bucket.hpp"

namespace hf::s3 {

class StartCheck {
public:
    enum class State : std::uint8_t { Running, Good, Refused };

    // `decided` is called once, when the state is Good or Refused. Good: what was found out is in `env`.
    StartCheck(Env& env, std::function<void()> decided);
    ~StartCheck();
    StartCheck(const StartCheck&) = delete;
    StartCheck& operator=(const StartCheck&) = delete;

    void begin();
    [[nodiscard]] State state() const { return state_; }
    // Refused: why, and what to do. Running: why it was tried again, empty while the first try goes on.
    [[nodiscard]] const std::string& trouble() const { return trouble_; }
    // Running: nothing that was sent last got through.
    [[nodiscard]] bool unreached() const { return unreached_; }

private:
    // What is asked, and what is wrong with the reply: empty for nothing.
    struct Step {
        std::function<Call()> ask;
        std::function<std::string(const Reply&)> judge;
        // Asked once more when the answer is lost. Not a write that succeeds: the second time its condition is broken.
        bool again = true;
        // A good answer is a listing. What is none may be a server on the way that speaks up once.
        bool listing = false;
    };

    [[nodiscard]] Step list_bucket();
    [[nodiscard]] Step create(bool again);
    [[nodiscard]] Step replace_current();
    [[nodiscard]] Step replace_stale();
    [[nodiscard]] Step replace_missing();
    [[nodiscard]] Step read_back(const char* method);
    [[nodiscard]] Step list_back();
    [[nodiscard]] Step delete_stale();
    [[nodiscard]] Step remove(std::string key);

    void run_step();
    void step_answered(const Reply& reply);
    void race(Condition condition);
    void race_answered(std::size_t runner, const Reply& reply);
    void look_at_winner();
    void winner_seen(const Reply& reply);
    void next();
    void start_over(const Reply& reply);
    void later(const Reply& reply, std::function<void()> fn);
    void refuse(const std::string& why);
    [[nodiscard]] std::string explain(const Reply& reply) const;
    void send(Call call, std::function<void(const Reply&)> done);
    [[nodiscard]] Call write(const std::string& key, Condition condition, const std::string& etag);
    [[nodiscard]] std::string where() const;

    Env& env_;
    std::function<void()> decided_;
    State state_ = State::Running;
    std::string trouble_;

    std::vector<Step> steps_;
    std::size_t at_ = 0;
    unsigned failed_ = 0;  // answers that decided nothing, since one did
    bool unreached_ = false;
    unsigned garbled_ = 0;  // good answers in a row that are no listing where one was asked for
    bool clock_corrected_ = false;  // in this step
    bool tried_bare_ = false;
    std::string alone_;  // keys of this round
    std::string raced_;
    std::string missing_;
    PutCall last_;  // what was written last
    std::string etag_before_;
    std::string etag_;  // of what lies at `alone_`

    struct Runner {
        WriteId write_id;
        bool won = false;
        std::string etag;
    };
    std::vector<Runner> runners_;
    std::size_t running_ = 0;
    unsigned races_ = 0;
    std::string raced_etag_;

    std::vector<Http::Id> open_;
    Loop::TimerId timer_ = 0;
};

}  // namespace hf::s3
