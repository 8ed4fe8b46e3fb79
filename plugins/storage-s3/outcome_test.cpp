// No outcome lies: the table of statuses, and the course of a Put against a store that does whatever it likes.
#include "plugins/storage-s3/outcome.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <random>

#include "plugins/storage-s3/backoff.hpp"

namespace hf::s3 {
namespace {

Exchange answer(int status, std::string code = {}) {
    Exchange exchange;
    exchange.answered = true;
    exchange.status = status;
    exchange.code = std::move(code);
    return exchange;
}

}  // namespace

TEST_CASE("what each answer proves") {
    CHECK(judge(answer(200)) == Verdict::Done);
    CHECK(judge(answer(204)) == Verdict::Done);
    CHECK(judge(answer(404)) == Verdict::Missing);
    CHECK(judge(answer(404, "NoSuchKey")) == Verdict::Missing);
    CHECK(judge(answer(404, "NoSuchBucket")) == Verdict::Refused);
    CHECK(judge(answer(412, "PreconditionFailed")) == Verdict::Precondition);
    for (const int status : {408, 409, 429, 500, 502, 503, 504, 599})
        CHECK(judge(answer(status)) == Verdict::Uncertain);
    CHECK(judge(answer(409, "ConditionalRequestConflict")) == Verdict::Uncertain);
    CHECK(judge(answer(400, "RequestTimeout")) == Verdict::Uncertain);
    CHECK(judge(answer(400, "SlowDown")) == Verdict::Uncertain);
    CHECK(judge(answer(403, "RequestTimeTooSkewed")) == Verdict::Skewed);
    for (const int status : {100, 301, 304, 307, 400, 401, 403, 405, 411, 416, 501})
        CHECK(judge(answer(status)) == Verdict::Refused);
    Exchange cut;
    cut.status = 200;  // the head came and the rest did not
    CHECK(judge(cut) == Verdict::Uncertain);
    cut.sent = false;
    CHECK(judge(cut) == Verdict::NotSent);
}

TEST_CASE("an exchange is told in words") {
    CHECK(describe(answer(503, "SlowDown")) == "503 SlowDown");
    Exchange none;
    none.message = "Timeout was reached";
    CHECK(describe(none) == "no answer: Timeout was reached");
    none.sent = false;
    CHECK(describe(none) == "not reached: Timeout was reached");
}

TEST_CASE("write ids are 32 hex digits, nothing else is one") {
    const WriteId id{0x0123456789abcdefULL, 0xfULL};
    CHECK(text_of(id) == "0123456789abcdef000000000000000f");
    CHECK(write_id_of(text_of(id)) == id);
    CHECK(text_of({}).empty());
    for (const char* other : {"",
                              "0",
                              "0123456789abcdef000000000000000",
                              "0123456789abcdef00000000000000fz",
                              "0123456789abcdef000000000000000ff",
                              "-123456789abcdef000000000000000f"})
        CHECK(write_id_of(other).none());
}

TEST_CASE("a refusal after a try that may have been applied decides nothing") {
    PutCourse first(Condition::None, {}, {1, 1});
    CHECK(first.sent(Verdict::Refused, {}, "no").result.outcome == Outcome::Refused);
    PutCourse later(Condition::None, {}, {1, 1});
    CHECK(later.sent(Verdict::Uncertain, {}, "?").next == PutCourse::Next::Look);
    CHECK(later.looked({Verdict::Missing, {}, {}, {}}).next == PutCourse::Next::Send);
    CHECK(later.sent(Verdict::Refused, {}, "no").result.outcome == Outcome::Unknown);
}

TEST_CASE("a 412 may be the own write's") {
    PutCourse course(Condition::IfAbsent, {}, {1, 1});
    CHECK(course.sent(Verdict::Precondition, {}, {}).next == PutCourse::Next::Look);
    const auto own = course.looked({Verdict::Done, "\"e\"", {1, 1}, {}});
    CHECK(own.result.outcome == Outcome::Applied);
    CHECK(own.result.etag == "\"e\"");
    const auto other = course.looked({Verdict::Done, "\"o\"", {2, 2}, {}});
    CHECK(other.result.outcome == Outcome::PreconditionFailed);
    CHECK(other.result.etag == "\"o\"");
    CHECK(other.result.write_id == WriteId{2, 2});
    // Whoever may not look knows nothing.
    CHECK(course.looked({Verdict::Refused, {}, {}, "403"}).result.outcome == Outcome::Unknown);
}

TEST_CASE("no write id is never the same") {
    PutCourse course(Condition::IfAbsent, {}, {});
    CHECK(course.sent(Verdict::Precondition, {}, {}).next == PutCourse::Next::Look);
    CHECK(course.looked({Verdict::Done, "\"o\"", {}, {}}).result.outcome ==
          Outcome::PreconditionFailed);
    CHECK(course.sent(Verdict::Uncertain, {}, {}).next == PutCourse::Next::Look);
    CHECK(course.looked({Verdict::Done, "\"o\"", {}, {}}).result.outcome == Outcome::Unknown);
}

TEST_CASE("a missing key answers a replacement, and a creation goes again") {
    PutCourse replace(Condition::IfMatch, "\"e\"", {1, 1});
    CHECK(replace.sent(Verdict::Missing, {}, {}).result.outcome == Outcome::NotFound);
    CHECK(replace.sent(Verdict::Precondition, {}, {}).next == PutCourse::Next::Look);
    CHECK(replace.looked({Verdict::Missing, {}, {}, {}}).result.outcome == Outcome::NotFound);
    // The version that should be replaced is there all the same: ask again, do not guess.
    CHECK(replace.looked({Verdict::Done, "\"e\"", {9, 9}, {}}).next == PutCourse::Next::Send);
    PutCourse create(Condition::IfAbsent, {}, {1, 1});
    CHECK(create.sent(Verdict::Precondition, {}, {}).next == PutCourse::Next::Look);
    CHECK(create.looked({Verdict::Missing, {}, {}, {}}).next == PutCourse::Next::Send);
}

namespace {

// A store of one key whose answers are lost, late, or errors, as dice fall. It knows what really happened.
class WildStore {
public:
    explicit WildStore(std::uint64_t seed) : dice_(seed) {}

    Verdict put(Condition condition, const std::string& etag, WriteId id, std::string& new_etag) {
        land_late();
        switch (dice_() % 8) {
            case 0:  // lost on the way there
                return Verdict::Uncertain;
            case 1:  // refused by a server in front
                return Verdict::Uncertain;
            case 2:  // held back, and applied some time later, or never
                late_.push_back({condition, etag, id});
                return Verdict::Uncertain;
            case 3:
                return Verdict::NotSent;
            case 4:  // applied, and the answer is lost
                (void)apply(condition, etag, id);
                return Verdict::Uncertain;
            default:
                const Verdict verdict = apply(condition, etag, id);
                new_etag = etag_;
                return verdict;
        }
    }
    Look look() {
        land_late();
        if (dice_() % 4 == 0) return {Verdict::Uncertain, {}, {}, {}};
        if (!there_) return {Verdict::Missing, {}, {}, {}};
        return {Verdict::Done, etag_, id_, {}};
    }
    // Somebody else writes.
    void stranger(Condition condition) { (void)apply(condition, etag_, {7, ++strangers_}); }
    void land_late() {
        if (late_.empty() || dice_() % 2 == 0) return;
        (void)apply(late_.back().condition, late_.back().etag, late_.back().id);
        late_.pop_back();
    }
    void settle() {
        for (const Held& held : late_) (void)apply(held.condition, held.etag, held.id);
        late_.clear();
    }

    std::uint64_t applied = 0;  // times that an id of ours took effect
    [[nodiscard]] const std::string& etag() const { return etag_; }
    [[nodiscard]] WriteId id() const { return id_; }
    std::mt19937_64& dice() { return dice_; }

private:
    struct Held {
        Condition condition;
        std::string etag;
        WriteId id;
    };
    Verdict apply(Condition condition, const std::string& etag, WriteId id) {
        if (condition == Condition::IfAbsent && there_) return Verdict::Precondition;
        if (condition == Condition::IfMatch && !there_) return Verdict::Missing;
        if (condition == Condition::IfMatch && etag != etag_) return Verdict::Precondition;
        there_ = true;
        id_ = id;
        etag_ = '"' + std::to_string(++serial_) + '"';
        if (id.hi == 1) ++applied;
        return Verdict::Done;
    }

    std::mt19937_64 dice_;
    std::vector<Held> late_;
    bool there_ = false;
    std::string etag_ = "\"0\"";
    WriteId id_;
    std::uint64_t serial_ = 0;
    std::uint64_t strangers_ = 0;
};

// Runs one Put, `tries` exchanges at most.
PutResult run(
    WildStore& store, Condition condition, const std::string& etag, WriteId id, int tries) {
    PutCourse course(condition, etag, id);
    PutCourse::Step step{PutCourse::Next::Send, false, {}};
    while (tries-- > 0) {
        if (step.next == PutCourse::Next::Send) {
            std::string stored;
            const Verdict verdict = store.put(condition, etag, id, stored);
            step = course.sent(verdict, stored, "");
        } else {
            step = course.looked(store.look());
        }
        if (step.next == PutCourse::Next::Answer) return step.result;
    }
    return course.given_up("tries are used up");
}

}  // namespace

TEST_CASE(
    "a conditional write against a wild store is applied once, and what is said of it is so") {
    int unknown = 0;
    int lost = 0;
    int won = 0;
    for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
        CAPTURE(seed);
        WildStore store(seed);
        const bool replaces = seed % 2 == 0;
        if (replaces) store.stranger(Condition::None);
        const std::string expected = store.etag();
        const bool rival = seed % 3 == 0;
        if (rival && seed % 5 == 0)
            store.stranger(replaces ? Condition::IfMatch : Condition::IfAbsent);
        const Condition condition = replaces ? Condition::IfMatch : Condition::IfAbsent;
        PutResult result;
        // The supervisor asks again until it knows.
        for (int asked = 0; asked < 50 && result.outcome == Outcome::Unknown; ++asked) {
            result = run(store, condition, expected, {1, 1}, 6);
            if (result.outcome == Outcome::Unknown) ++unknown;
            if (rival && asked == 0)
                store.stranger(replaces ? Condition::IfMatch : Condition::IfAbsent);
        }
        store.settle();
        REQUIRE(result.outcome != Outcome::Unknown);
        CHECK(store.applied <= 1);
        if (result.outcome == Outcome::Applied) {
            ++won;
            CHECK(store.applied == 1);
        } else {
            ++lost;
            // A rival that replaced ours is one that saw it: only then may it have been applied before.
            CHECK(result.outcome == Outcome::PreconditionFailed);
            if (!replaces || !rival) CHECK(store.applied == 0);
        }
    }
    CHECK(unknown > 1000);
    CHECK(lost > 1000);
    CHECK(won > 1000);
}

TEST_CASE("pauses are jittered and bounded, and repetitions have a budget") {
    std::mt19937_64 random(1);
    std::int64_t most = 0;
    for (int i = 0; i < 1000; ++i) {
        CHECK(pause_ms(1, random()) <= kPauseFirstMs);
        CHECK(pause_ms(1000, random()) <= kPauseMaxMs);
        most = std::max(most, pause_ms(4, random()));
    }
    CHECK(most > 300);
    CHECK(most <= 400);
    CHECK(pause_ms(3, 0) == 0);
    RetryBudget budget;
    unsigned taken = 0;
    while (budget.take()) ++taken;
    CHECK(taken == RetryBudget::kMost);
    for (unsigned i = 0; i + 1 < RetryBudget::kSuccessesPerRetry; ++i) budget.succeeded();
    CHECK_FALSE(budget.take());
    budget.succeeded();
    CHECK(budget.take());
    for (int i = 0; i < 1'000'000; ++i) budget.succeeded();
    CHECK(budget.left() == RetryBudget::kMost);
}

}  // namespace hf::s3
