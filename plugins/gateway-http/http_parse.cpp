// Boost.Beast's parser behind our gate. Beast 1.74 by itself takes repeated and listed Content-Length, any
// Transfer-Encoding it does not know (and then reads the body as the next request), and requests without Host or with two.

// Beast checks its own state with assertions, and input alone can break one of them (a last chunk's line that ends where a
// read ended). A broken one here ends a connection, not the process: the handler below throws, feed() catches.
#define BOOST_ENABLE_ASSERT_HANDLER

// In sanitizer builds gcc 12 takes an empty boost::optional, returned by value, for one that is read.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "plugins/gateway-http/http_parse.hpp"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <cstring>
#include <limits>

namespace boost {

struct BrokenAssertion {};

void assertion_failed(const char* /*expr*/,
                      const char* /*function*/,
                      const char* /*file*/,
                      long /*line*/) {
    throw BrokenAssertion{};
}
void assertion_failed_msg(const char* /*expr*/,
                          const char* /*msg*/,
                          const char* /*function*/,
                          const char* /*file*/,
                          long /*line*/) {
    throw BrokenAssertion{};
}

}  // namespace boost

namespace hf::gateway {

namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;
using ErrorCode = boost::beast::error_code;

// Method, two spaces, version and line end beside the target: the longest registered method has 17 letters.
constexpr std::size_t kRequestLineExtra = 64;
// The shortest thing that can follow in a chunked body is its last chunk, "0\r\n\r\n".
constexpr std::size_t kLastChunkBytes = 5;
// What framing may cost: a body in chunks of one byte takes six for each; the rest is for extensions.
constexpr std::size_t kFramingFactor = 8;

std::string_view to_std(string_view text) {
    return {text.data(), text.size()};
}

bool is_token(char c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c != '\0' && std::strchr("!#$%&'*+-.^_`|~", c) != nullptr;
}

bool is_host(char c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c != '\0' && std::strchr("-._~:[]%!$&'()*+,;=", c) != nullptr;
}

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

bool equals_lower(std::string_view text, std::string_view lower_case) {
    return std::equal(
        text.begin(), text.end(), lower_case.begin(), lower_case.end(), [](char a, char b) {
            return lower(a) == b;
        });
}

Method to_method(http::verb verb) {
    switch (verb) {
        case http::verb::get:
            return Method::Get;
        case http::verb::head:
            return Method::Head;
        case http::verb::post:
            return Method::Post;
        case http::verb::put:
            return Method::Put;
        case http::verb::delete_:
            return Method::Delete;
        case http::verb::patch:
            return Method::Patch;
        case http::verb::options:
            return Method::Options;
        case http::verb::unknown:
            return Method::Unknown;
        default:
            return Method::NotAllowed;
    }
}

// What the head says about framing, counted while Beast hands out the fields.
struct FramingFields {
    unsigned hosts = 0;
    unsigned content_lengths = 0;
    unsigned transfer_encodings = 0;
    bool content_length_digits = true;
    bool chunked = false;
    bool expects = false;
    bool expect_continue = false;
};

class Reader final : public http::basic_parser<true> {
public:
    // `body_max` may change until the head is done.
    Reader(const std::uint64_t& body_max, char* data, std::size_t size, Head& head)
        : body_max_(body_max), data_(data), size_(size), head_(&head) {
        // Our own scan has bounded the head already, and Beast's body limit counts a chunk's line anew each time it reads it;
        // its "no limit" refuses every Content-Length.
        header_limit(std::numeric_limits<std::uint32_t>::max());
        body_limit(std::numeric_limits<std::uint64_t>::max());
    }

    // The head's buffer and Head are not touched after this.
    void head_done() { head_ = nullptr; }
    void sink(Bytes* sink) { sink_ = sink; }

    FramingFields framing;
    std::uint64_t body_bytes = 0;
    std::uint64_t chunk_remaining = 0;
    bool chunk_seen = false;

private:
    void on_request_impl(
        http::verb verb, string_view method, string_view target, int version, ErrorCode&) override {
        head_->method = to_method(verb);
        head_->method_text = to_std(method);
        head_->target = to_std(target);
        head_->http11 = version == 11;
    }

    void on_response_impl(int, string_view, int, ErrorCode&) override {}

    void on_field_impl(http::field field,
                       string_view name,
                       string_view value,
                       ErrorCode& ec) override {
        if (head_ == nullptr) return;  // a trailer: read, bounded, not passed on
        std::string_view kept = to_std(value);
        if (kept.data() < data_ || kept.data() >= data_ + size_) {
            // A folded value sits in Beast's own buffer. `folded` never grows: the head's bytes bound it.
            if (head_->folded.size() + kept.size() > head_->folded.capacity()) {
                ec = http::error::header_limit;
                return;
            }
            const std::size_t at = head_->folded.size();
            head_->folded += kept;
            kept = std::string_view(head_->folded).substr(at);
        }
        char* const name_at = data_ + (name.data() - data_);
        for (std::size_t i = 0; i < name.size(); ++i) name_at[i] = lower(name_at[i]);
        head_->fields.push_back({{name_at, name.size()}, kept});
        note(field, kept);
    }

    void note(http::field field, std::string_view value) {
        switch (field) {
            case http::field::host:
                ++framing.hosts;
                head_->host = value;
                break;
            case http::field::content_length:
                ++framing.content_lengths;
                for (const char c : value)
                    if (c < '0' || c > '9') framing.content_length_digits = false;
                break;
            case http::field::transfer_encoding:
                ++framing.transfer_encodings;
                framing.chunked = equals_lower(value, "chunked");
                break;
            case http::field::expect:
                framing.expect_continue = !framing.expects && equals_lower(value, "100-continue");
                framing.expects = true;
                break;
            default:
                break;
        }
    }

    void on_header_impl(ErrorCode&) override {}
    void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}

    std::size_t keep(string_view body) {
        body_bytes += body.size();
        if (sink_ != nullptr) {
            const BytesView bytes = as_bytes(to_std(body));
            sink_->insert(sink_->end(), bytes.begin(), bytes.end());
        }
        return body.size();
    }

    std::size_t on_body_impl(string_view body, ErrorCode&) override { return keep(body); }

    void on_chunk_header_impl(std::uint64_t size, string_view, ErrorCode& ec) override {
        chunk_seen = true;
        chunk_remaining = size;
        if (size > body_max_ - body_bytes) ec = http::error::body_limit;
    }

    std::size_t on_chunk_body_impl(std::uint64_t remain, string_view body, ErrorCode&) override {
        chunk_remaining = remain - body.size();
        return keep(body);
    }

    void on_finish_impl(ErrorCode&) override {}

    const std::uint64_t& body_max_;
    char* data_;
    std::size_t size_;
    Head* head_;
    Bytes* sink_ = nullptr;
};

// What Beast calls a bad version is a version we do not speak only if the line ends like a version at all.
bool ends_with_version(std::string_view line) {
    if (line.size() < 11 || line[line.size() - 11] != ' ') return false;
    const std::string_view word = line.substr(line.size() - 10, 8);
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    return word.starts_with("HTTP/") && digit(word[5]) && word[6] == '.' && digit(word[7]) &&
           std::count(line.begin(), line.end(), ' ') == 2;
}

}  // namespace

struct RequestParser::State {
    State(const Settings& given, const Allowance& extra) : settings(given), allowance(extra) {
        allow(extra);
    }

    const Settings& settings;
    const Allowance allowance;
    // The settings, and as long as nobody has said whose the request is, the allowance.
    std::size_t header_max = 0;
    std::size_t count_max = 0;
    std::size_t target_max = 0;
    std::uint64_t body_max = 0;
    std::optional<Reader> reader;
    Refusal refusal;
    bool led = false;         // an empty line before the request line was skipped
    std::size_t scanned = 0;  // bytes of the head looked at so far
    std::size_t line_start = 0;
    std::size_t lines = 0;
    std::size_t request_line = 0;  // bytes of the first line
    std::size_t raw_body_bytes = 0;

    Parsed refuse(std::uint16_t status, std::string_view reason, std::string text) {
        refusal = {status, reason, std::move(text)};
        return Parsed::Refused;
    }
    void allow(const Allowance& extra) {
        header_max = settings.header_bytes_max + extra.header_bytes;
        count_max = settings.header_count_max + extra.header_count;
        target_max = settings.target_bytes_max + extra.target_bytes;
        body_max = std::max<std::uint64_t>(settings.body_bytes_max, extra.body_bytes_least);
    }
    Parsed too_large() {
        return refuse(413,
                      "body_too_large",
                      "the body is larger than body_bytes_max = " +
                          std::to_string(settings.body_bytes_max) + " bytes");
    }
    Parsed target_too_long() {
        return refuse(414,
                      "target_too_long",
                      "the request target is longer than target_bytes_max = " +
                          std::to_string(settings.target_bytes_max) + " bytes");
    }
    Parsed header_too_large() {
        return refuse(431,
                      "header_too_large",
                      "the header is larger than header_bytes_max = " +
                          std::to_string(settings.header_bytes_max) + " bytes");
    }
    Parsed too_many_lines() {
        return refuse(431,
                      "header_too_large",
                      "the request has more than header_count_max = " +
                          std::to_string(settings.header_count_max) + " header lines");
    }

    Parsed scan(const char* data, std::size_t size);
    Parsed gate(Head& head);
    Parsed failed(const ErrorCode& ec, std::string_view request_line_text);
    std::size_t feed(const char* data, std::size_t size, ErrorCode& ec);
};

// Looks for the end of the head and holds it to its bounds; reads no grammar but lines. `scanned` is its size when Done.
Parsed RequestParser::State::scan(const char* data, std::size_t size) {
    for (;;) {
        const void* found = std::memchr(data + scanned, '\n', size - scanned);
        const std::size_t end =
            found == nullptr ? size
                             : static_cast<std::size_t>(static_cast<const char*>(found) - data) + 1;
        if (lines == 0 && end > target_max + kRequestLineExtra) return target_too_long();
        if (lines != 0 && end - request_line > header_max) return header_too_large();
        if (found == nullptr) {
            scanned = size;
            return Parsed::NeedMore;
        }
        if (end - line_start < 2 || data[end - 2] != '\r')
            return refuse(400, "malformed", "a line ends without a carriage return");
        scanned = end;
        if (lines == 0) request_line = end;
        if (lines != 0 && end - line_start == 2) return Parsed::Done;
        // The request line is no field.
        if (lines > count_max) return too_many_lines();
        ++lines;
        line_start = end;
    }
}

std::size_t RequestParser::State::feed(const char* data, std::size_t size, ErrorCode& ec) {
    try {
        return reader->put(boost::asio::const_buffer(data, size), ec);
    } catch (const boost::BrokenAssertion&) {
        ec = http::error::bad_chunk;
        return 0;
    }
}

Parsed RequestParser::State::failed(const ErrorCode& ec, std::string_view request_line_text) {
    if (ec == http::error::body_limit) return too_large();
    if (ec == http::error::header_limit)
        return refuse(431, "header_too_large", "a folded header value is too long");
    if (ec == http::error::bad_version && ends_with_version(request_line_text))
        return refuse(505, "version", "only HTTP/1.1 and HTTP/1.0 are spoken here");
    return refuse(400, "malformed", "the request is malformed: " + ec.message());
}

Parsed RequestParser::State::gate(Head& head) {
    const FramingFields& framing = reader->framing;
    if (head.target.size() > target_max) return target_too_long();
    if (framing.hosts > 1 || (framing.hosts == 0 && head.http11))
        return refuse(400, "malformed", "the request needs exactly one Host field");
    if (!std::all_of(head.host.begin(), head.host.end(), is_host))
        return refuse(400, "malformed", "the Host field is malformed");
    if (framing.transfer_encodings > 1 || (framing.transfer_encodings == 1 && !framing.chunked))
        return refuse(400, "malformed", "the only transfer coding taken is one \"chunked\"");
    if (framing.transfer_encodings == 1 && !head.http11)
        return refuse(400, "malformed", "HTTP/1.0 has no transfer codings");
    if (framing.transfer_encodings != 0 && framing.content_lengths != 0)
        return refuse(400, "malformed", "Content-Length and Transfer-Encoding exclude each other");
    if (framing.content_lengths > 1 || !framing.content_length_digits)
        return refuse(400, "malformed", "the request may have one Content-Length, a number");
    if (framing.expects && !framing.expect_continue)
        return refuse(417, "expectation", "the only expectation met here is one \"100-continue\"");
    const auto length = reader->content_length();
    if (length.has_value()) head.content_length = *length;
    head.has_body = framing.chunked || head.content_length.value_or(0) != 0;
    head.expect_continue = framing.expect_continue && head.http11 && head.has_body;
    head.keep_alive = reader->keep_alive();
    if (head.content_length.value_or(0) > body_max) return too_large();
    return Parsed::Done;
}

RequestParser::RequestParser(const Settings& settings, const Allowance& allowance)
    : state_(std::make_unique<State>(settings, allowance)) {}
RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;
RequestParser& RequestParser::operator=(RequestParser&&) noexcept = default;

Parsed RequestParser::read_head(char* data, std::size_t size, std::size_t& consumed, Head& head) {
    State& s = *state_;
    consumed = 0;
    if (size == 0) return Parsed::NeedMore;
    if (s.scanned == 0 && !s.led && *data == '\r') {
        // HTTP asks servers to overlook one empty line there; some clients send one after a body.
        if (size < 2) return Parsed::NeedMore;
        if (data[1] != '\n')
            return s.refuse(400, "malformed", "the request is malformed: bad line end");
        s.led = true;
        consumed = 2;
        data += 2;
        size -= 2;
        if (size == 0) return Parsed::NeedMore;
    }
    if (!is_token(*data)) return s.refuse(400, "malformed", "this is not an HTTP request");
    if (const Parsed scanned = s.scan(data, size); scanned != Parsed::Done) return scanned;

    head.method = Method::Unknown;
    head.method_text = head.target = head.host = {};
    head.http11 = head.keep_alive = head.expect_continue = head.has_body = false;
    head.content_length.reset();
    head.fields.clear();
    head.folded.clear();
    head.folded.reserve(s.header_max);
    s.reader.emplace(s.body_max, data, s.scanned, head);
    ErrorCode ec;
    const std::size_t used = s.feed(data, s.scanned, ec);
    if (ec) return s.failed(ec, {data, s.request_line});
    if (!s.reader->is_header_done() || used != s.scanned)
        return s.refuse(400, "malformed", "the request is malformed: the header does not end");
    if (const Parsed gated = s.gate(head); gated != Parsed::Done) return gated;
    s.reader->head_done();
    s.reader->eager(true);
    consumed += used;
    return Parsed::Done;
}

Parsed RequestParser::narrow(const Head& head) {
    State& s = *state_;
    s.allow({});
    // The request line was counted, and is no field.
    if (head.target.size() > s.target_max) return s.target_too_long();
    if (s.scanned - s.request_line > s.header_max) return s.header_too_large();
    if (s.lines > s.count_max + 1) return s.too_many_lines();
    if (head.content_length.value_or(0) > s.body_max) return s.too_large();
    return Parsed::Done;
}

Parsed RequestParser::read_body(const char* data,
                                std::size_t size,
                                std::size_t& consumed,
                                Bytes* sink) {
    State& s = *state_;
    Reader& reader = *s.reader;
    consumed = 0;
    if (size == 0) return Parsed::NeedMore;
    const bool chunked = reader.framing.chunked;
    // Beast asserts that a chunk's line it meets for the second time is whole; it is when the first look had this much.
    const bool fed = !chunked || reader.chunk_seen || size >= kLastChunkBytes;
    if (fed) {
        ErrorCode ec;
        reader.sink(sink);
        consumed = s.feed(data, size, ec);
        reader.sink(nullptr);
        if (ec && ec != http::error::need_more) return s.failed(ec, {});
    }
    s.raw_body_bytes += consumed;
    if (s.raw_body_bytes > kFramingFactor * s.body_max + s.header_max)
        return s.refuse(400, "malformed", "the chunks carry far more framing than body");
    if (reader.is_done()) return Parsed::Done;
    // What Beast left is a chunk's line or trailers, not whole yet. It would wait for ever for a line end it does not take.
    const std::string_view rest(data + consumed, size - consumed);
    if (rest.size() > s.header_max)
        return s.refuse(431, "header_too_large", "a chunk's line or the trailers are too long");
    for (std::size_t at = rest.find('\n'); at != std::string_view::npos;
         at = rest.find('\n', at + 1)) {
        if (at == 0 || rest[at - 1] != '\r')
            return s.refuse(400, "malformed", "a chunk's line ends without a carriage return");
        // Beast would have taken the first line and what follows it; we held it back.
        if (!fed) break;
    }
    return Parsed::NeedMore;
}

std::size_t RequestParser::body_hint() const {
    const Reader& reader = *state_->reader;
    const std::uint64_t known = reader.framing.chunked
                                    ? reader.chunk_remaining
                                    : reader.content_length_remaining().value_or(0);
    return static_cast<std::size_t>(std::min<std::uint64_t>(known, state_->body_max));
}

const Refusal& RequestParser::refusal() const {
    return state_->refusal;
}

void RequestParser::reset() {
    State& s = *state_;
    s.reader.reset();
    s.led = false;
    s.scanned = s.line_start = s.lines = s.request_line = s.raw_body_bytes = 0;
    s.allow(s.allowance);
}

std::string_view status_phrase(std::uint16_t status) {
    const http::status known = http::int_to_status(status);
    return known == http::status::unknown ? std::string_view()
                                          : to_std(http::obsolete_reason(known));
}

}  // namespace hf::gateway
