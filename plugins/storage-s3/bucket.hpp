// A bucket with conditional writes over an S3-compatible store: Get, Put, Delete, List, Probe as the storage contract has
// them. Responsible for what each answer of the store means for the one who asked (with outcome.hpp) and for bounds on what
// is open. Not for messages, and not for whether the store may be used at all: check.hpp.
//
// Bodies are whole strings up to kObjectBytesMax: PutCall::body and GetResult::body are the only places that hold one.
//
// Death: nothing is kept here. A Put that was sent when the process died is decided when it comes again with its write id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "plugins/storage-s3/operation.hpp"

namespace hf::s3 {

// One page of a listing as the schema has it.
inline constexpr std::uint32_t kListLimitMax = 256;
// Further keys of one Delete, as the schema says.
inline constexpr std::size_t kDeleteAlsoMax = 255;
// Of one Delete at once: half of what connections_max allows by default, so that writes still find a connection.
inline constexpr std::size_t kDeletesAtOnce = 16;
// Bodies of open operations: each of the 96 that the supervisor has open may hold two (its own and the request's).
inline constexpr std::size_t kOpenBytesMax = std::size_t{64} * 1024 * 1024;
// Where the start check and Probe work, below the prefix.
inline constexpr std::string_view kProbePrefix = ".probe/";

struct GetResult {
    Outcome outcome = Outcome::Unknown;
    std::string body;
    std::string etag;
    WriteId write_id;
    std::string reason;
};

struct PutCall {
    std::string key;
    std::string body;
    Condition condition = Condition::None;
    std::string etag;
    WriteId write_id;
};

struct DeleteCall {
    std::string key;
    Condition condition = Condition::None;
    std::string etag;
    std::vector<std::string> also;
};
struct DeleteResult {
    Outcome outcome = Outcome::Unknown;
    std::string reason;
};

struct ListCall {
    std::string prefix;
    std::string after;
    std::uint32_t limit = kListLimitMax;  // 1..kListLimitMax
};
struct ListResult {
    Outcome outcome = Outcome::Unknown;
    std::vector<ListedKey> keys;  // without the setting's prefix
    bool more = false;
    std::int64_t store_time_ms = 0;
    std::string reason;
};

class Bucket {
public:
    // `env` must outlive it.
    explicit Bucket(Env& env) : env_(env) {}
    ~Bucket();
    Bucket(const Bucket&) = delete;
    Bucket& operator=(const Bucket&) = delete;

    // Each is answered once, from the loop or at once.
    void get(std::string key, std::function<void(GetResult&)> done);
    void put(PutCall call, std::function<void(PutResult&)> done);
    void erase(DeleteCall call, std::function<void(DeleteResult&)> done);
    void list(ListCall call, std::function<void(ListResult&)> done);

    [[nodiscard]] std::size_t open() const { return open_.size(); }

private:
    // Empty: there is room for one more that holds `bytes`.
    [[nodiscard]] std::string no_room(std::size_t bytes) const;
    // Empty: it is a key here.
    [[nodiscard]] std::string bad_key(const std::string& key) const;
    void start(const std::shared_ptr<Operation>& operation, std::size_t bytes);

    Env& env_;
    std::unordered_set<std::shared_ptr<Operation>> open_;
    std::size_t open_bytes_ = 0;
};

// The operations, for Bucket (get.cpp, put.cpp, erase.cpp, list.cpp).
std::shared_ptr<Operation> make_get(Env& env,
                                    std::string key,
                                    std::function<void(GetResult&)> done);
std::shared_ptr<Operation> make_put(Env& env, PutCall call, std::function<void(PutResult&)> done);
std::shared_ptr<Operation> make_erase(Env& env,
                                      DeleteCall call,
                                      std::function<void(DeleteResult&)> done);
std::shared_ptr<Operation> make_list(Env& env,
                                     ListCall call,
                                     std::function<void(ListResult&)> done);

// The signed headers of a Put.
[[nodiscard]] Call put_request(const Env& env, const PutCall& call);

}  // namespace hf::s3
