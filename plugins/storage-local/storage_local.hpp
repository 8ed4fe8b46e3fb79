// The storage plugin of a single machine: messages of abi/schema/storage.fbs on one side, a bucket on the other.
//
// Get, List and Probe are answered on the loop thread from a short snapshot. Put and Delete go to the committer in the
// order of arrival and are answered after their commit, with one wake for each batch. A read that arrives behind a write
// that is not answered yet may see the object before or after it.
//
// Death: see bucket.hpp. The supervisor decides every unanswered request by its schema's `replay`; a Put that was
// committed and not answered hears Applied when it comes again with its write_id.
//
// When the meta page could not be written, the writes concerned are answered Unknown, the supervisor gets a Fault with the
// reason, everything after is Refused, and the process ends once those answers are out: the next one opens the file anew.
// Likewise when another node has made the file larger than is mapped here; reads are then left to the next process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi/base/unique_fd.hpp"
#include "abi/sdk/plugin.hpp"
#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/committer.hpp"

namespace hf::bucket {

// Reads Configure.settings. Invalid names the setting and, if it is unknown, those that exist.
Result<Options> read_settings(const abi::Configure& configure);

// Further keys of one Delete, as the schema says.
inline constexpr std::size_t kDeleteAlsoMax = 255;

class StorageLocal final : public sdk::Plugin {
public:
    StorageLocal() = default;
    ~StorageLocal() override;

    [[nodiscard]] sdk::Identity identity() const override;
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override;
    void handle(const sdk::Message& message) override;
    void batch_done() override;
    bool shed_done() override;

private:
    struct Counts {
        std::uint64_t puts = 0, gets = 0, lists = 0, deletes = 0, refused = 0;
    };

    // A Delete of several keys: answered once, when the last of them is decided.
    struct OpenDelete {
        std::size_t left = 0;
        WriteResult result;
    };

    void on_get(std::uint64_t req_id, const abi::Get& get);
    void on_list(std::uint64_t req_id, const abi::List& list);
    void on_probe(std::uint64_t req_id);
    void on_put(std::uint64_t req_id, const abi::Put& put);
    void on_delete(std::uint64_t req_id, const abi::Delete& erase);
    void submit(Write write);
    void answer(Finished finished);
    bool last_of_delete(Finished& one);
    void deliver(std::vector<Finished> finished);  // the committer's thread
    void on_committed();
    void report_counters();
    void give_up();
    bool gives_up_instead(const Result<Snapshot>& snapshot);

    sdk::Context* context_ = nullptr;
    // What the committer delivered and this thread has not answered yet. Its own bell instead of Context::post, because
    // the committer may finish a last commit when the link is gone already.
    UniqueFd bell_;
    std::mutex delivered_mutex_;
    std::vector<std::vector<Finished>> delivered_;
    std::unique_ptr<Bucket> bucket_;
    std::unique_ptr<Committer> committer_;
    std::map<std::uint64_t, OpenDelete> deletes_;  // by request, of more than one key
    Counts counts_;
    bool counts_changed_ = false;
    std::int64_t counts_sent_ns_ = 0;
    bool gave_up_ = false;
};

}  // namespace hf::bucket
