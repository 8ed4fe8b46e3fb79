// Bytes from a client to one request head and its body: HTTP/1.0 and 1.1, without I/O. Boost.Beast reads the grammar
// (http_parse.cpp is the one file that names it); around it stands a gate that refuses what Beast lets through and could
// be read differently elsewhere, and all limits. Outcomes do not depend on how the bytes were cut into pieces.
// Not responsible for routes, connections or answers. Nothing here outlives the connection that owns the parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"
#include "plugins/gateway-http/method.hpp"
#include "plugins/gateway-http/settings.hpp"

namespace hf::gateway {

struct Field {
    std::string_view name;  // lower case
    std::string_view value;
};

// Why a request is not taken. The connection cannot be used for another one after it.
struct Refusal {
    std::uint16_t status = 400;
    std::string_view reason;  // one word for programs: "header_too_large"
    std::string text;         // one sentence for people
};

// One request head. Views point into the buffer given to read_head (whose header names were turned to lower case in
// place) or into `folded`; they are good until that buffer changes or the next read_head.
struct Head {
    Method method = Method::Unknown;
    std::string_view method_text;
    std::string_view target;
    std::string_view host;
    bool http11 = false;
    bool keep_alive = false;
    bool expect_continue = false;
    bool has_body = false;
    std::optional<std::uint64_t> content_length;  // absent: none or chunked
    std::vector<Field> fields;                    // as sent, in order
    std::string folded;                           // values that were folded over lines, joined
};

enum class Parsed : std::uint8_t { NeedMore, Done, Refused };

// What a call of another node may take beyond what a client's request may: a passed-on request is a whole one of a client of
// that node, and what nodes say to each other comes on top. A chain of 16 units is 6.3 KiB, the rest below 2 KiB.
struct Allowance {
    std::size_t header_bytes = 0;
    std::size_t header_count = 0;
    std::size_t target_bytes = 0;  // a name may be spelled longer than its client did
    std::size_t body_bytes_least = 0;
};
inline constexpr Allowance kForNodes{
    std::size_t{8} * 1024, 24, kUnitBytesMax + 64, kPayloadBytesMax + kHeaderBytesMax};

class RequestParser {
public:
    // `allowance` is on top of the settings, until narrow().
    explicit RequestParser(const Settings& settings, const Allowance& allowance = {});
    ~RequestParser();
    RequestParser(RequestParser&&) noexcept;
    RequestParser& operator=(RequestParser&&) noexcept;

    // `data` starts where the last call said that it stopped consuming. NeedMore: come back with all that was not consumed
    // and more behind it. Done: the head is complete, `consumed` bytes of it may go once its views are not needed.
    Parsed read_head(char* data, std::size_t size, std::size_t& consumed, Head& head);
    // After read_head was Done: the request is a client's, and gets no allowance. Done, or Refused as read_head would have.
    Parsed narrow(const Head& head);
    // After Done with has_body. Appends what belongs to the body to `sink` (null: thrown away).
    Parsed read_body(const char* data, std::size_t size, std::size_t& consumed, Bytes* sink);
    // Bytes that the body still needs as far as is known; a hint for the size of the next read.
    [[nodiscard]] std::size_t body_hint() const;
    [[nodiscard]] const Refusal& refusal() const;
    // Ready for the next request of the connection.
    void reset();

private:
    struct State;
    std::unique_ptr<State> state_;
};

// The standard's phrase for a status, empty for one it does not know.
[[nodiscard]] std::string_view status_phrase(std::uint16_t status);

}  // namespace hf::gateway
