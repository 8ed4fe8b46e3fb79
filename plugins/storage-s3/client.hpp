// Signed requests to one bucket: from a method, a key and headers to a URL, a signature and a judged reply. Responsible for
// that what is signed is what is sent, for the clock (a store that calls ours skewed says its own time), and for reading
// S3's error bodies. Decides nothing: who calls repeats, looks and answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "plugins/http-client/http.hpp"
#include "plugins/storage-s3/outcome.hpp"
#include "plugins/storage-s3/settings.hpp"
#include "plugins/storage-s3/sign.hpp"
#include "plugins/storage-s3/xml.hpp"

namespace hf::s3 {

using web::Http;
using web::HttpAnswer;
using web::HttpRequest;

inline constexpr std::string_view kWriteIdHeader = "x-amz-meta-holdfast-write-id";
// Of an error or a head that we read ourselves; S3's errors are below 2 KiB.
inline constexpr std::size_t kErrorBytesMax = std::size_t{64} * 1024;

struct Call {
    std::string method;
    std::string key;  // below the prefix; ignored by a call on the bucket
    bool on_bucket = false;
    Pairs query;
    Pairs headers;  // lower case; all of them are signed
    std::string body;
    std::size_t answer_bytes_max = kErrorBytesMax;
    std::int64_t timeout_ms = 0;
};

struct Reply {
    Exchange exchange;
    Verdict verdict = Verdict::Uncertain;
    StoreError error;
    std::string etag;  // one form, with quotes
    WriteId write_id;
    std::string body;
    bool too_large = false;           // of a good answer: its body is longer than was allowed
    std::int64_t store_time_ms = 0;   // from its Date; 0: it has none
    std::int64_t retry_after_ms = 0;  // 0: not asked to wait
};

class Client {
public:
    using Done = std::function<void(Reply&)>;
    using Say = std::function<void(const std::string&)>;

    // `say` hears of a clock that is off, once for each correction. All must outlive it.
    Client(Http& http, const Settings& settings, Credentials credentials, Say say)
        : http_(http),
          settings_(settings),
          signer_(std::move(credentials), settings.region),
          say_(std::move(say)) {}

    Http::Id send(Call call, Done done);
    void cancel(Http::Id id) { http_.cancel(id); }
    // The store's clock as far as it is known, Unix ms.
    [[nodiscard]] std::int64_t store_now_ms() const;

private:
    [[nodiscard]] HttpRequest signed_request(Call call);
    [[nodiscard]] Reply read(HttpAnswer& answer);
    void correct_clock(const Reply& reply);

    Http& http_;
    const Settings& settings_;
    Signer signer_;
    Say say_;
    std::int64_t clock_offset_s_ = 0;  // the store's clock less ours
};

// "Mon, 30 Nov 2026 16:42:38 GMT" as Unix ms; -1: it is none.
[[nodiscard]] std::int64_t parse_http_date(const std::string& text);

}  // namespace hf::s3
