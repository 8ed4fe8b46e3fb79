// A small S3 for unit tests: one bucket in memory behind a real socket on loopback, in a thread of its own, with the quirks
// and faults that a test asks for. It verifies no signature: that is what the real store of tests/s3 is for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/base/unique_fd.hpp"

namespace hf::s3::testing {

struct Request {
    std::string method;
    std::string path;  // decoded, without the bucket: "prefix/key"
    std::map<std::string, std::string> query;
    std::map<std::string, std::string> headers;  // lower case
    std::string body;
};

// What becomes of one request.
enum class Fate : std::uint8_t {
    Serve,
    DropBefore,  // the connection ends, nothing was done
    DropAfter,   // done, and the connection ends without an answer
    Late,        // the connection ends, and it is done when land_late() is called
    Half,        // done, and the answer is cut in its body or head
    Silent,      // nothing is done or answered, the connection stays open
};

class Store {
public:
    struct Quirks {
        bool bare_etags = false;  // If-Match of a PUT wants the tag without quotes
        bool ignores_if_none_match = false;
        bool ignores_if_match = false;
        bool ignores_delete_if_match = false;
        bool check_then_write = false;  // conditions are looked at before the writes of a race
        bool forgets_metadata = false;
        bool empty_lists = false;
        bool missing_is_412 = false;  // If-Match of a key that is not there
    };
    // Asked before each request; empty: all are served. Answers a status beside Serve: that is sent and nothing is done.
    using Script = std::function<std::pair<Fate, int>(const Request&, std::uint64_t n)>;

    explicit Store(Quirks quirks);
    Store() : Store(Quirks{}) {}
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    void script(Script script);
    void land_late();
    [[nodiscard]] std::string endpoint() const;
    [[nodiscard]] std::size_t objects() const;
    [[nodiscard]] std::uint64_t requests() const { return requests_.load(); }
    [[nodiscard]] std::uint64_t connections() const { return connections_.load(); }
    // Of one key: how many PUTs took effect.
    [[nodiscard]] std::uint64_t written(const std::string& key) const;
    [[nodiscard]] std::string body_of(const std::string& key) const;
    // Another error body than S3's for statuses of the script; empty: S3's with that code.
    void error_code(std::string code, std::string region = {});
    void clock_ahead(std::int64_t seconds) { ahead_s_ = seconds; }

private:
    struct Object {
        std::string body;
        std::string etag;
        std::string write_id;
    };
    void accept_all();
    void serve(int fd);
    std::string answer(const Request& request);
    std::string put(const Request& request);
    std::string list(const Request& request) const;
    std::string reply(int status,
                      const std::string& headers,
                      const std::string& body,
                      bool head) const;
    std::string error(int status, const std::string& code, bool head) const;

    Quirks quirks_;
    UniqueFd listener_;
    std::uint16_t port_ = 0;
    std::atomic<bool> ending_{false};
    std::atomic<std::uint64_t> requests_{0};
    std::atomic<std::uint64_t> connections_{0};
    std::atomic<std::int64_t> ahead_s_{0};
    mutable std::mutex mutex_;
    Script script_;
    std::string code_;
    std::string region_;
    std::map<std::string, Object> objects_;
    std::map<std::string, std::uint64_t> written_;
    std::vector<Request> late_;
    std::thread acceptor_;
    std::vector<std::thread> threads_;  // of the acceptor, until it has ended
};

}  // namespace hf::s3::testing
