#include "plugins/storage-s3/testing/store.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <ctime>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "plugins/storage-s3/sign.hpp"

namespace hf::s3::testing {
namespace {

constexpr std::int64_t kSkewMaxS = 15 * 60;  // as AWS has it
constexpr int kLookMs = 20;  // how often an idle connection looks whether the test ended

std::string http_date(std::int64_t unix_s) {
    const auto seconds = static_cast<std::time_t>(unix_s);
    std::tm utc{};
    ::gmtime_r(&seconds, &utc);
    char text[64];
    return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

std::string header_of(const Request& request, const std::string& name) {
    const auto found = request.headers.find(name);
    return found == request.headers.end() ? "" : found->second;
}

std::string query_of(const Request& request, const std::string& name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? "" : found->second;
}

void send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
}

// Takes one request off the front of `bytes`; false: more is needed.
bool take(std::string& bytes, Request& out) {
    const std::size_t head = bytes.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    out = {};
    std::size_t at = bytes.find("\r\n");
    const std::string line = bytes.substr(0, at);
    out.method = line.substr(0, line.find(' '));
    std::string target = line.substr(line.find(' ') + 1);
    target.resize(target.rfind(' '));
    while (at < head) {
        const std::size_t end = bytes.find("\r\n", at + 2);
        const std::string field = bytes.substr(at + 2, end - at - 2);
        const std::size_t colon = field.find(':');
        std::string name = field.substr(0, colon);
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
            return static_cast<char>(std::tolower(c));
        });
        out.headers[name] = field.substr(std::min(colon + 2, field.size()));
        at = end;
    }
    const std::string length = header_of(out, "content-length");
    const std::size_t body = length.empty() ? 0 : std::stoul(length);
    if (bytes.size() < head + 4 + body) return false;
    out.body = bytes.substr(head + 4, body);
    bytes.erase(0, head + 4 + body);
    const std::size_t mark = target.find('?');
    std::string query = mark == std::string::npos ? "" : target.substr(mark + 1);
    target = target.substr(0, mark);
    while (!query.empty()) {
        const std::string one = query.substr(0, query.find('&'));
        query.erase(0, one.size() + 1);
        std::string value;
        HF_CHECK(percent_decoded(one.substr(one.find('=') + 1), value), "a query that is encoded");
        out.query[one.substr(0, one.find('='))] = value;
    }
    const std::size_t slash = target.find('/', 1);
    HF_CHECK(percent_decoded(slash == std::string::npos ? "" : target.substr(slash + 1), out.path),
             "a path that is encoded");
    return true;
}

}  // namespace

Store::Store(Quirks quirks) : quirks_(quirks) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    // SAFETY: the family says which kind of address it is.
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    HF_CHECK(::bind(listener_.get(), plain, size) == 0 && ::listen(listener_.get(), 64) == 0 &&
                 ::getsockname(listener_.get(), plain, &size) == 0,
             "a listener on loopback");
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
}

Store::~Store() {
    ending_ = true;
    acceptor_.join();
    for (std::thread& one : threads_) one.join();
}

void Store::script(Script script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
    requests_ = 0;
}

void Store::error_code(std::string code, std::string region) {
    const std::lock_guard lock(mutex_);
    code_ = std::move(code);
    region_ = std::move(region);
}

std::string Store::endpoint() const {
    return "http://127.0.0.1:" + std::to_string(port_);
}

std::size_t Store::objects() const {
    const std::lock_guard lock(mutex_);
    return objects_.size();
}

std::uint64_t Store::written(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = written_.find(key);
    return found == written_.end() ? 0 : found->second;
}

std::string Store::body_of(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    return found == objects_.end() ? "" : found->second.body;
}

void Store::land_late() {
    std::vector<Request> due;
    {
        const std::lock_guard lock(mutex_);
        due.swap(late_);
    }
    for (const Request& request : due) (void)answer(request);
}

void Store::accept_all() {
    while (!ending_) {
        pollfd one{listener_.get(), POLLIN, 0};
        if (::poll(&one, 1, kLookMs) <= 0) continue;
        const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) continue;
        ++connections_;
        threads_.emplace_back([this, fd] { serve(fd); });
    }
}

void Store::serve(int raw) {
    const UniqueFd fd(raw);
    std::string bytes;
    char block[16384];
    while (!ending_) {
        Request request;
        if (!take(bytes, request)) {
            pollfd one{fd.get(), POLLIN, 0};
            if (::poll(&one, 1, kLookMs) <= 0) continue;
            const ssize_t got = ::recv(fd.get(), block, sizeof block, 0);
            if (got <= 0) return;
            bytes.append(block, static_cast<std::size_t>(got));
            continue;
        }
        std::pair<Fate, int> fate{Fate::Serve, 0};
        {
            const std::lock_guard lock(mutex_);
            if (script_) fate = script_(request, ++requests_);
        }
        switch (fate.first) {
            case Fate::Serve:
                send_all(fd.get(),
                         fate.second == 0 ? answer(request)
                                          : error(fate.second, "", request.method == "HEAD"));
                break;
            case Fate::DropBefore:
                return;
            case Fate::DropAfter:
                (void)answer(request);
                return;
            case Fate::Late: {
                const std::lock_guard lock(mutex_);
                late_.push_back(request);
                return;
            }
            case Fate::Half: {
                const std::string whole = answer(request);
                send_all(fd.get(), std::string_view(whole).substr(0, whole.size() - 3));
                return;
            }
            case Fate::Silent:
                break;
        }
    }
}

std::string Store::reply(int status,
                         const std::string& headers,
                         const std::string& body,
                         bool head) const {
    return "HTTP/1.1 " + std::to_string(status) +
           " X\r\nDate: " + http_date(wall_ms() / 1000 + ahead_s_) + "\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + (head ? "" : body);
}

std::string Store::error(int status, const std::string& code, bool head) const {
    std::string told = code;
    std::string region;
    if (told.empty()) {
        const std::lock_guard lock(mutex_);
        told = code_;
        region = region_;
    }
    return reply(status,
                 "Content-Type: application/xml\r\n",
                 "<?xml version=\"1.0\"?><Error><Code>" + told +
                     "</Code><Message>of the test</Message>" +
                     (region.empty() ? "" : "<Region>" + region + "</Region>") + "</Error>",
                 head);
}

std::string Store::answer(const Request& request) {
    const bool head = request.method == "HEAD";
    if (ahead_s_ != 0) {
        std::tm utc{};
        (void)::strptime(header_of(request, "x-amz-date").c_str(), "%Y%m%dT%H%M%SZ", &utc);
        const std::int64_t off = ::timegm(&utc) - (wall_ms() / 1000 + ahead_s_);
        if (off > kSkewMaxS || off < -kSkewMaxS) return error(403, "RequestTimeTooSkewed", head);
    }
    if (request.path.empty()) return list(request);
    const std::lock_guard lock(mutex_);
    if (request.method == "PUT") return put(request);
    const auto found = objects_.find(request.path);
    if (request.method == "DELETE") {
        const std::string match = header_of(request, "if-match");
        if (found == objects_.end()) return reply(204, "", "", true);
        const std::string& etag = found->second.etag;
        if (!match.empty() && !quirks_.ignores_delete_if_match && match != etag &&
            match != etag.substr(1, etag.size() - 2))
            return error(412, "PreconditionFailed", head);
        objects_.erase(found);
        return "HTTP/1.1 204 X\r\n\r\n";
    }
    if (found == objects_.end()) return error(404, "NoSuchKey", head);
    const Object& object = found->second;
    std::string headers = "ETag: " + object.etag + "\r\n";
    if (!object.write_id.empty())
        headers += "X-Amz-Meta-Holdfast-Write-Id: " + object.write_id + "\r\n";
    return reply(200, headers, object.body, head);
}

// With the lock held.
std::string Store::put(const Request& request) {
    const auto found = objects_.find(request.path);
    const bool there = found != objects_.end();
    const std::string match = header_of(request, "if-match");
    // A store that looks first and writes later: in a race everybody has looked before anybody wrote.
    const bool blind = quirks_.check_then_write &&
                       request.path.find(".probe/") != std::string::npos &&
                       request.path.ends_with("-b");
    if (!blind) {
        if (header_of(request, "if-none-match") == "*" && there && !quirks_.ignores_if_none_match)
            return error(412, "PreconditionFailed", false);
        if (!match.empty() && !quirks_.ignores_if_match) {
            if (!there)
                return quirks_.missing_is_412 ? error(412, "PreconditionFailed", false)
                                              : error(404, "NoSuchKey", false);
            const std::string& etag = found->second.etag;
            if (match != (quirks_.bare_etags ? etag.substr(1, etag.size() - 2) : etag))
                return error(412, "PreconditionFailed", false);
        }
    }
    Object& object = objects_[request.path];
    object.body = request.body;
    // As S3's: of the bytes alone.
    object.etag = '"' + sha256_hex(as_bytes(request.body)).substr(0, 32) + '"';
    object.write_id =
        quirks_.forgets_metadata ? "" : header_of(request, "x-amz-meta-holdfast-write-id");
    ++written_[request.path];
    return reply(200, "ETag: " + object.etag + "\r\n", "", false);
}

std::string Store::list(const Request& request) const {
    const std::lock_guard lock(mutex_);
    const std::string prefix = query_of(request, "prefix");
    const std::string after = query_of(request, "start-after");
    const std::string max = query_of(request, "max-keys");
    const std::size_t most = max.empty() ? 1000 : std::stoul(max);
    std::string out;
    std::size_t count = 0;
    bool truncated = false;
    for (const auto& [key, object] : objects_) {
        if (quirks_.empty_lists || !key.starts_with(prefix) || key <= after) continue;
        if (count == most) {
            truncated = true;
            break;
        }
        ++count;
        out += "<Contents><Key>" + percent_encoded(key, false) +
               "</Key><LastModified>2026-11-30T10:00:00.000Z</LastModified><ETag>&quot;" +
               object.etag.substr(1, object.etag.size() - 2) + "&quot;</ETag><Size>" +
               std::to_string(object.body.size()) + "</Size></Contents>";
    }
    return reply(
        200,
        "",
        "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>" +
            std::string(truncated ? "true" : "false") + "</IsTruncated>" + out +
            "</ListBucketResult>",
        false);
}

}  // namespace hf::s3::testing
