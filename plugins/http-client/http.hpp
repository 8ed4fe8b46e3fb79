// HTTP exchanges over kept-alive connections: libcurl's multi interface on a Loop. Responsible for connections, time limits,
// TLS, bounds on answers, and for telling apart what certainly was not sent. http.cpp is the only file that knows libcurl.
// Headers come signed, if at all, and answers are not judged.
//
// A connection that the peer closes while a request goes out: libcurl would send that request once more by itself. A GET or
// HEAD may, unless the request says `once`; anything else is ended instead, since what the first sending did is not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/base/result.hpp"
#include "plugins/http-client/loop.hpp"

namespace hf::web {

struct HttpRequest {
    std::string method;  // any; HEAD has no body
    std::string url;     // sent as it is
    std::string target;  // of the request line, instead of the URL's path and query; empty: those
    std::vector<std::pair<std::string, std::string>> headers;
    std::vector<std::string> left_out = {};  // fields that libcurl is not to send by itself
    std::string body;
    int body_fd =
        -1;  // instead of `body`: a file, read from its start; stays the caller's, open until the end
    std::uint64_t body_bytes = 0;        // of that file
    bool once = false;                   // whatever the method
    std::int64_t timeout_ms = 5'000;     // from the start of sending to the last byte
    std::uint64_t answer_bytes_max = 0;  // a longer body ends the exchange
    // Takes the answer's body as it comes, instead of HttpAnswer. False ends the exchange.
    std::function<bool(std::string_view)> on_body = {};
};

struct HttpAnswer {
    bool answered = false;   // status, headers and all of the body came
    bool sent = true;        // false: not one byte of the request went out
    bool too_large = false;  // the body is longer than was allowed; the head is good
    int status = 0;
    std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
    std::string body;
    std::string trouble;                                                   // why there is no answer
    [[nodiscard]] const std::string& header(std::string_view name) const;  // empty: not there
};

class Http {
public:
    // Requests that wait for a connection: what opens them has bounds of its own, so that this one is not met; storage-s3 may
    // have 1024 operations open, each with one request, but for deletes, which have a few. Beyond it one is answered as not
    // sent.
    static constexpr std::size_t kWaitingMax = 8'192;

    struct Options {
        std::size_t connections_max = 32;
        std::int64_t connect_timeout_ms = 2'000;
        std::string ca_pem =
            {};  // TLS: whom to believe; empty: nobody, so every https request fails
        long idle_s_max =
            0;  // a connection that was silent for longer is not used again; 0: libcurl's 118 s
    };
    using Done = std::function<void(HttpAnswer&)>;
    using Id = std::uint64_t;

    static Result<std::unique_ptr<Http>> create(Loop& loop, Options options);
    ~Http();
    Http(const Http&) = delete;
    Http& operator=(const Http&) = delete;

    // `done` is called once, later, from the loop; not after cancel().
    Id send(HttpRequest request, Done done);
    // False: not one byte of it went out, and none will. True: it may have been sent, or the id is not open.
    bool cancel(Id id);
    [[nodiscard]] std::size_t open() const { return running_.size() + waiting_.size(); }
    [[nodiscard]] std::uint64_t connections_made() const { return connections_made_; }

private:
    struct Exchange;
    Http(Loop& loop, Options options);
    void start_waiting();
    void start(std::unique_ptr<Exchange> exchange);
    void prepare(Exchange& exchange);
    static void prepare_body(Exchange& exchange);
    void act(int fd, int events);
    void collect();
    void finish(void* easy, int result);
    void set_timer(long ms);
    static int on_socket(void* easy, int fd, int what, void* self, void* socket);
    static int on_timer(void* multi, long ms, void* self);

    Loop& loop_;
    Options options_;
    void* multi_ = nullptr;
    std::vector<void*> idle_;  // easy handles without an exchange
    std::unordered_map<void*, std::unique_ptr<Exchange>> running_;  // by easy handle
    std::deque<std::unique_ptr<Exchange>> waiting_;
    Loop::TimerId timer_ = 0;  // libcurl's; 0: none
    Id last_id_ = 0;
    std::uint64_t connections_made_ = 0;
};

}  // namespace hf::web
