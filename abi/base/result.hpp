// Result<T>: what may go wrong outside. The only header that names tl::expected.
#pragma once

#include <string>
#include <system_error>
#include <utility>

#include <tl/expected.hpp>

namespace hf {

// Few codes, because callers branch on them; the sentence is for people.
enum class Code {
    Invalid,      // the input breaks a rule that the message names
    NotFound,     // the thing named does not exist
    Exists,       // it exists already, or somebody else has it
    Busy,         // a bound is reached; may be tried again later
    Refused,      // policy or permission says no
    PeerGone,     // the instance behind a handle is not there any more
    Io,           // the operating system refused; `errno_value` says how
    Corrupt,      // stored bytes do not read as what they should be
    Unavailable,  // a needed part is missing on this machine
    Timeout,
};

struct Error {
    Code code = Code::Invalid;
    std::string message;  // what was tried, on what, what is allowed
    int errno_value = 0;
};

// A [[nodiscard]] class over tl::expected: by itself tl lets a caller drop a failure in silence.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : inner_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
    Result(Error error)
        : inner_(tl::unexpected<Error>(std::move(error))) {}  // NOLINT(google-explicit-constructor)

    [[nodiscard]] bool ok() const { return inner_.has_value(); }
    explicit operator bool() const { return ok(); }
    [[nodiscard]] const T& value() const& { return *inner_; }
    [[nodiscard]] T& value() & { return *inner_; }
    [[nodiscard]] T&& value() && { return *std::move(inner_); }
    [[nodiscard]] const Error& error() const& { return inner_.error(); }
    [[nodiscard]] Error&& error() && { return std::move(inner_).error(); }
    const T* operator->() const { return &*inner_; }
    T* operator->() { return &*inner_; }
    const T& operator*() const& { return *inner_; }
    T& operator*() & { return *inner_; }

private:
    tl::expected<T, Error> inner_;
};

template <>
class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Error error)
        : inner_(tl::unexpected<Error>(std::move(error))) {}  // NOLINT(google-explicit-constructor)

    [[nodiscard]] bool ok() const { return inner_.has_value(); }
    explicit operator bool() const { return ok(); }
    [[nodiscard]] const Error& error() const& { return inner_.error(); }
    [[nodiscard]] Error&& error() && { return std::move(inner_).error(); }

private:
    tl::expected<void, Error> inner_;
};

[[nodiscard]] inline Error fail(Code code, std::string message) {
    return Error{code, std::move(message), 0};
}

// The system's refusal: appends the text of `errno_value` to the sentence.
[[nodiscard]] inline Error fail_errno(int errno_value, const std::string& what) {
    return Error{Code::Io, what + ": " + std::generic_category().message(errno_value), errno_value};
}

}  // namespace hf

#define HF_CONCAT_INNER(a, b) a##b
#define HF_CONCAT(a, b) HF_CONCAT_INNER(a, b)

// Runs an expression that returns Result<void>; passes a failure on unchanged.
#define HF_TRY(expr)                                                                              \
    do {                                                                                          \
        if (auto hf_try_result = (expr); !hf_try_result) return std::move(hf_try_result).error(); \
    } while (false)

// HF_ASSIGN(auto x, f()): x = the value, or passes the failure on unchanged.
#define HF_ASSIGN(lhs, expr) HF_ASSIGN_INNER(HF_CONCAT(hf_assign_, __LINE__), lhs, expr)
#define HF_ASSIGN_INNER(tmp, lhs, expr)      \
    auto tmp = (expr);                       \
    if (!tmp) return std::move(tmp).error(); \
    lhs = std::move(tmp).value()
