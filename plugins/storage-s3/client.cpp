#include "plugins/storage-s3/client.hpp"

#include <charconv>
#include <ctime>

#include "abi/base/clock.hpp"
#include "plugins/storage-s3/etag.hpp"

namespace hf::s3 {
namespace {

// An operator reads it; stores write paragraphs.
constexpr std::size_t kMessageBytesMax = 200;
// More than an operation may take: who is asked to wait longer gives up earlier.
constexpr std::int64_t kRetryAfterMsMax = 60'000;

std::int64_t retry_after_ms(const std::string& text) {
    std::int64_t seconds = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, seconds);
    if (error != std::errc() || end != last || seconds < 0) return 0;
    return std::min(seconds, kRetryAfterMsMax / 1000) * 1000;
}

}  // namespace

std::int64_t parse_http_date(const std::string& text) {
    std::tm utc{};
    const char* rest = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
    if (rest == nullptr || *rest != '\0') return -1;
    const std::int64_t seconds = ::timegm(&utc);
    return seconds < 0 ? -1 : seconds * 1000;
}

Http::Id Client::send(Call call, Done done) {
    return http_.send(signed_request(std::move(call)),
                      [this, done = std::move(done)](HttpAnswer& answer) {
                          Reply reply = read(answer);
                          if (reply.verdict == Verdict::Skewed) correct_clock(reply);
                          done(reply);
                      });
}

std::int64_t Client::store_now_ms() const {
    return wall_ms() + clock_offset_s_ * 1000;
}

HttpRequest Client::signed_request(Call call) {
    const std::int64_t now_s = wall_ms() / 1000 + clock_offset_s_;
    ToSign to_sign;
    to_sign.method = call.method;
    to_sign.path = settings_.path_of(call.on_bucket ? std::string() : settings_.prefix + call.key);
    to_sign.query = canonical_query(call.query);
    to_sign.payload = sha256_hex(as_bytes(call.body));
    to_sign.headers = std::move(call.headers);
    to_sign.headers.emplace_back("host", settings_.authority());
    to_sign.headers.emplace_back("x-amz-date", amz_date(now_s));
    to_sign.headers.emplace_back("x-amz-content-sha256", to_sign.payload);
    if (!signer_.credentials().session_token.empty())
        to_sign.headers.emplace_back("x-amz-security-token", signer_.credentials().session_token);

    HttpRequest out;
    out.url = settings_.url_base() + to_sign.path;
    if (!to_sign.query.empty()) out.url += '?' + to_sign.query;
    out.headers.emplace_back("authorization", signer_.authorization(to_sign, now_s));
    for (auto& header : to_sign.headers) out.headers.push_back(std::move(header));
    out.method = std::move(call.method);
    out.body = std::move(call.body);
    out.timeout_ms = call.timeout_ms;
    out.answer_bytes_max = call.answer_bytes_max;
    return out;
}

Reply Client::read(HttpAnswer& answer) {
    Reply reply;
    Exchange& exchange = reply.exchange;
    exchange.answered = answer.answered;
    exchange.sent = answer.sent;
    exchange.status = answer.status;
    exchange.message = answer.trouble;
    const bool good = answer.status >= 200 && answer.status < 300;
    if (answer.too_large && good) {
        // The head says all that is asked of such an object: that it is there and too large.
        reply.too_large = true;
        exchange.answered = true;
    }
    if (answer.answered && !good) {
        reply.error = read_error(answer.body);
        exchange.code = reply.error.code;
        exchange.message = reply.error.message.substr(0, kMessageBytesMax);
        if (reply.error.region.empty()) reply.error.region = answer.header("x-amz-bucket-region");
        reply.retry_after_ms = retry_after_ms(answer.header("retry-after"));
    }
    reply.verdict = judge(exchange);
    reply.etag = etag_from_wire(answer.header("etag"));
    reply.write_id = write_id_of(answer.header(kWriteIdHeader));
    reply.store_time_ms = std::max<std::int64_t>(parse_http_date(answer.header("date")), 0);
    reply.body = std::move(answer.body);
    return reply;
}

void Client::correct_clock(const Reply& reply) {
    if (reply.store_time_ms == 0) return;
    const std::int64_t offset_s = reply.store_time_ms / 1000 - wall_ms() / 1000;
    if (offset_s == clock_offset_s_) return;
    clock_offset_s_ = offset_s;
    say_("this machine's clock is " + std::to_string(offset_s < 0 ? -offset_s : offset_s) + " s " +
         (offset_s < 0 ? "ahead of" : "behind") +
         " the store's, which refused a request for it; requests are now signed with the store's "
         "time, set the clock");
}

}  // namespace hf::s3
