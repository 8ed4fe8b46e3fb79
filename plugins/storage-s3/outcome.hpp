// What an exchange with the store proves. Responsible for the one promise of this plugin: no outcome lies. *Applied* and
// *precondition failed* are said only when the store has said it, or when what lies in the store shows it; all else is
// *unknown*, and the supervisor sends the same bytes again under the same write id. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace hf::s3 {

enum class Outcome : std::uint8_t { Applied, PreconditionFailed, NotFound, Refused, Unknown };
enum class Condition : std::uint8_t { None, IfAbsent, IfMatch };

struct WriteId {
    std::uint64_t hi = 0;
    std::uint64_t lo = 0;
    [[nodiscard]] bool none() const { return hi == 0 && lo == 0; }
    friend bool operator==(const WriteId&, const WriteId&) = default;
};
// As it lies in x-amz-meta-holdfast-write-id: 32 hex digits; empty for none.
[[nodiscard]] std::string text_of(const WriteId& id);
// None for anything else: somebody else's object.
[[nodiscard]] WriteId write_id_of(const std::string& text);

// One HTTP request and what came of it.
struct Exchange {
    bool answered = false;  // a whole answer came: status, headers and all of the body
    bool sent = true;       // false: not one byte of the request went out
    int status = 0;
    std::string code;     // of S3's error body; HEAD has none
    std::string message;  // likewise, or why there is no answer
};

enum class Verdict : std::uint8_t {
    Done,          // 2xx
    Missing,       // no such key
    Precondition,  // 412: the store looked and did nothing
    Refused,       // it will not, and asking again will not help
    Skewed,        // our clock is off; nothing was done
    NotSent,       // nothing went out: nothing was done
    Uncertain,     // done or not, or still to be done
};
[[nodiscard]] Verdict judge(const Exchange& exchange);
// "503 SlowDown: reduce your rate", "no answer: Timeout was reached"; for people.
[[nodiscard]] std::string describe(const Exchange& exchange);

struct PutResult {
    Outcome outcome = Outcome::Unknown;
    std::string etag;  // Applied, PreconditionFailed: of the object that is there
    WriteId write_id;
    std::string reason;
};

// What a look at the key showed.
struct Look {
    Verdict verdict = Verdict::Uncertain;
    std::string etag;
    WriteId write_id;
    std::string reason;
};

// The course of one Put: what was seen so far decides what is done next. Send: the same request as before. Look: ask what
// lies there. Both after a pause when `pause` is set. Answer: `result` is final.
//
// After a 412 the key is looked at, since an earlier attempt, of this process or of one before it, may be what is in the
// way. After an attempt that may have been applied the same, and when nothing of ours is found the same request goes again:
// it may still be on its way, but whichever of the two comes second finds its condition broken.
class PutCourse {
public:
    enum class Next : std::uint8_t { Send, Look, Answer };
    struct Step {
        Next next = Next::Answer;
        bool pause = false;
        PutResult result;
    };

    PutCourse(Condition condition, std::string etag, WriteId write_id)
        : condition_(condition), etag_(std::move(etag)), write_id_(write_id) {}

    [[nodiscard]] Step sent(Verdict verdict, const std::string& etag, const std::string& reason);
    [[nodiscard]] Step looked(const Look& look);
    // The time or the tries are used up.
    [[nodiscard]] PutResult given_up(const std::string& reason) const;

private:
    [[nodiscard]] static Step send(bool pause) { return {Next::Send, pause, {}}; }
    [[nodiscard]] static Step look(bool pause) { return {Next::Look, pause, {}}; }
    [[nodiscard]] static Step answer(PutResult result) {
        return {Next::Answer, false, std::move(result)};
    }
    [[nodiscard]] Step refused(const std::string& reason) const;
    [[nodiscard]] Step found(const Look& look) const;

    Condition condition_;
    std::string etag_;
    WriteId write_id_;
    bool uncertain_ = false;  // an attempt may have been applied
};

}  // namespace hf::s3
