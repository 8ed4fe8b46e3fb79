#include "plugins/storage-s3/outcome.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace hf::s3 {
namespace {

constexpr std::size_t kWriteIdDigits = 32;

bool read_word(std::string_view digits, std::uint64_t& word) {
    const char* last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, word, 16);
    return error == std::errc() && end == last;
}

}  // namespace

std::string text_of(const WriteId& id) {
    if (id.none()) return {};
    std::array<char, kWriteIdDigits + 1> text{};
    std::snprintf(text.data(),
                  text.size(),
                  "%016llx%016llx",
                  static_cast<unsigned long long>(id.hi),
                  static_cast<unsigned long long>(id.lo));
    return text.data();
}

WriteId write_id_of(const std::string& text) {
    WriteId id;
    const std::string_view digits = text;
    if (digits.size() != kWriteIdDigits || !read_word(digits.substr(0, 16), id.hi) ||
        !read_word(digits.substr(16), id.lo))
        return {};
    return id;
}

Verdict judge(const Exchange& exchange) {
    if (!exchange.sent) return Verdict::NotSent;
    if (!exchange.answered) return Verdict::Uncertain;
    const int status = exchange.status;
    const std::string& code = exchange.code;
    if (status >= 200 && status < 300) return Verdict::Done;
    if (status == 404) {
        // A key may be missing; a bucket, or whatever else a server on the way means, is somebody's mistake. HEAD has no
        // code.
        return code.empty() || code == "NoSuchKey" ? Verdict::Missing : Verdict::Refused;
    }
    if (status == 412) return Verdict::Precondition;
    if (code == "RequestTimeTooSkewed") return Verdict::Skewed;
    // 409 is a conflict with another write that goes on; 408 and S3's own RequestTimeout are a body that came too slowly.
    if (status == 409 || status == 408 || status == 429 || code == "RequestTimeout" ||
        code == "SlowDown")
        return Verdict::Uncertain;
    if (status == 501) return Verdict::Refused;
    return status >= 500 ? Verdict::Uncertain : Verdict::Refused;
}

std::string describe(const Exchange& exchange) {
    if (!exchange.sent) return "not reached: " + exchange.message;
    if (!exchange.answered) return "no answer: " + exchange.message;
    std::string text = std::to_string(exchange.status);
    if (!exchange.code.empty()) text += ' ' + exchange.code;
    if (!exchange.message.empty()) text += ": " + exchange.message;
    return text;
}

PutCourse::Step PutCourse::refused(const std::string& reason) const {
    // An earlier attempt may have been applied: then this refusal decides nothing.
    return answer({uncertain_ ? Outcome::Unknown : Outcome::Refused, {}, {}, reason});
}

PutCourse::Step PutCourse::sent(Verdict verdict,
                                const std::string& etag,
                                const std::string& reason) {
    switch (verdict) {
        case Verdict::Done:
            return answer({Outcome::Applied, etag, write_id_, {}});
        case Verdict::Precondition:
            return look(false);
        case Verdict::Missing:
            // What should be replaced is not there. Nothing else a Put says can miss a key.
            if (condition_ == Condition::IfMatch) return answer({Outcome::NotFound, {}, {}, {}});
            return refused(reason);
        case Verdict::Refused:
        case Verdict::Skewed:  // the caller has corrected its clock once and failed again
            return refused(reason);
        case Verdict::NotSent:
            return send(true);
        case Verdict::Uncertain:
            uncertain_ = true;
            return look(true);
    }
    return refused(reason);
}

PutCourse::Step PutCourse::looked(const Look& seen) {
    switch (seen.verdict) {
        case Verdict::Done:
            return found(seen);
        case Verdict::Missing:
            // Nothing of ours is there, which proves nothing; the condition decides it once more.
            if (condition_ == Condition::IfMatch) return answer({Outcome::NotFound, {}, {}, {}});
            return send(false);
        case Verdict::NotSent:
        case Verdict::Uncertain:
            return look(true);
        default:
            // What is there cannot be seen. That the store said 412 is not enough: it may be our own write.
            return answer({Outcome::Unknown, {}, {}, seen.reason});
    }
}

PutCourse::Step PutCourse::found(const Look& seen) const {
    if (!write_id_.none() && seen.write_id == write_id_)
        return answer({Outcome::Applied, seen.etag, write_id_, {}});
    if (condition_ == Condition::None) return send(false);
    // The old version is still there: the request is late, or the store compares tags in another form.
    if (condition_ == Condition::IfMatch && seen.etag == etag_) return send(true);
    // Somebody else's. Without a write id it may be ours as well.
    if (write_id_.none() && uncertain_)
        return answer({Outcome::Unknown, {}, {}, "an earlier try may be what is there"});
    return answer({Outcome::PreconditionFailed, seen.etag, seen.write_id, {}});
}

PutResult PutCourse::given_up(const std::string& reason) const {
    return {Outcome::Unknown, {}, {}, reason};
}

}  // namespace hf::s3
