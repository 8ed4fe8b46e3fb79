// What every storage plugin promises (docs: outcomes, conditions, listing), as cases against an abstract store. The same
// suite runs over a real plugin binary (storage_conformance), in process for unit tests, and for outside authors.
//
// Each case works under a prefix of its own and removes what it wrote, so that it may run on a bucket with a life.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "envelope_generated.h"

namespace hf::conformance {

struct Id {
    std::uint64_t hi = 0;
    std::uint64_t lo = 0;
    friend bool operator==(const Id&, const Id&) = default;
};

struct PutCall {
    std::string key;
    std::string body;
    Id write_id;
    abi::Condition condition = abi::Condition::None;
    std::string etag;
};
struct StoredReply {
    abi::Outcome outcome = abi::Outcome::Unknown;
    std::string etag;
    Id write_id;
    std::string reason;
};
struct GotReply {
    abi::Outcome outcome = abi::Outcome::Unknown;
    std::string body;
    std::string etag;
    Id write_id;
    std::string reason;
};
struct DeleteCall {
    std::string key;
    abi::Condition condition = abi::Condition::None;
    std::string etag;
    std::vector<std::string> also;
};
struct DeletedReply {
    abi::Outcome outcome = abi::Outcome::Unknown;
    std::string reason;
};
struct ListCall {
    std::string prefix;
    std::string after;
    std::uint32_t limit = 0;
};
struct ListedObject {
    std::string key;
    std::uint64_t size = 0;
    std::string etag;
    std::int64_t last_modified_ms = 0;
};
struct ListedReply {
    abi::Outcome outcome = abi::Outcome::Unknown;
    std::vector<ListedObject> objects;
    bool more = false;
    std::int64_t store_time_ms = 0;
    std::string reason;
};
struct ProbedReply {
    abi::Outcome outcome = abi::Outcome::Unknown;
    bool conditional_writes = false;
    std::uint64_t bytes_used = 0;
    std::uint64_t bytes_max = 0;
    std::uint64_t objects = 0;
    std::int64_t store_time_ms = 0;
    std::string reason;
};

// What a store promises beyond the contract's core; a case that needs more than it has is skipped by name.
struct Traits {
    bool any_key_bytes = false;   // keys may hold zero and 255 (the core's own keys never do)
    bool ordered_writes = false;  // writes asked together take effect in the order of asking
    bool etag_per_write = false;  // equal bytes written twice have different etags
    bool conditional_deletes = false;
    bool can_restart = false;  // kill -9 and start again is possible
};

class StorageUnderTest {
public:
    virtual ~StorageUnderTest() = default;
    [[nodiscard]] virtual Traits traits() const = 0;
    virtual GotReply get(const std::string& key) = 0;
    // Asks all at once, then waits for all; replies in the order of the calls.
    virtual std::vector<StoredReply> put_all(std::span<const PutCall> calls) = 0;
    virtual DeletedReply erase(const DeleteCall& call) = 0;
    virtual ListedReply list(const ListCall& call) = 0;
    virtual ProbedReply probe() = 0;
    // Asks all, kills the store's process at once without waiting for answers, starts it again. Answers that came
    // before the end are filled in, the others have an empty `outcome` slot: `answered` says which.
    virtual std::vector<StoredReply> put_and_kill(std::span<const PutCall> calls,
                                                  std::vector<bool>& answered) = 0;

    StoredReply put(const PutCall& call) { return std::move(put_all({&call, 1}).front()); }
};

// Collects what did not hold.
class Report {
public:
    void expect(bool holds, const char* file, int line, const std::string& text);
    [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }

private:
    std::vector<std::string> failures_;
};

struct ContractCase {
    const char* name;
    // Null: runs on every store.
    bool Traits::*needs;
    void (*run)(StorageUnderTest& store, Report& report, const std::string& prefix);
};

[[nodiscard]] std::span<const ContractCase> storage_contract();

enum class Verdict { Held, Failed, Skipped };
// Runs one case under a fresh prefix and removes what it left.
Verdict run_case(const ContractCase& one, StorageUnderTest& store, Report& report);

}  // namespace hf::conformance
