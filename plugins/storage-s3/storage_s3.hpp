// The storage plugin of an S3-compatible bucket: messages of abi/schema/storage.fbs on one side, a Bucket on the other, all on
// the loop thread. Responsible for settings and files at the start, for when the store may be used, and for answering each
// request once.
//
// The start tries the store out (check.hpp). A store that must not be used refuses the start with a sentence. One that cannot
// be reached does not: the process is ready, answers Unknown (so that the supervisor asks again) and tells the reason to
// Probe, until the check came to an end; if that is a refusal, Fault goes out and the process ends.
//
// Death: nothing is kept in this process. Every unanswered request is decided by its schema's `replay`; a Put that was
// applied and not answered hears Applied when it comes again with its write id.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "abi/sdk/plugin.hpp"
#include "plugins/storage-s3/bucket.hpp"
#include "plugins/storage-s3/check.hpp"
#include "plugins/storage-s3/settings.hpp"

namespace hf::s3 {

class StorageS3 final : public sdk::Plugin {
public:
    StorageS3() = default;
    ~StorageS3() override;

    [[nodiscard]] sdk::Identity identity() const override;
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override;
    void handle(const sdk::Message& message) override;
    void batch_done() override;
    bool shed_done() override;

private:
    Result<void> connect(Credentials credentials, std::string ca_pem);
    Result<void> check_store();
    void checked();
    [[nodiscard]] bool usable() const;
    [[nodiscard]] std::string not_usable() const;

    void on_get(std::uint64_t req_id, const abi::Get& get);
    void on_list(std::uint64_t req_id, const abi::List& list);
    void on_probe(std::uint64_t req_id);
    void on_put(std::uint64_t req_id, const abi::Put& put);
    void on_delete(std::uint64_t req_id, const abi::Delete& erase);

    void answer_get(std::uint64_t req_id, const GetResult& result);
    void answer_put(std::uint64_t req_id, const PutResult& result);
    void answer_delete(std::uint64_t req_id, const DeleteResult& result);
    void answer_list(std::uint64_t req_id, const ListResult& result);
    void answer_probe(std::uint64_t req_id, const ListResult& result);
    void count(Outcome outcome);
    void give_up(const std::string& why);
    void report_counters();

    sdk::Context* context_ = nullptr;
    Settings settings_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Http> http_;
    std::unique_ptr<Client> client_;
    std::unique_ptr<Env> env_;
    std::unique_ptr<Bucket> bucket_;
    std::unique_ptr<StartCheck> check_;  // null: not asked for
    bool configuring_ = false;
    bool gave_up_ = false;
    std::uint64_t counted_ = 0;  // requests answered, at the last report
    std::uint64_t answered_ = 0;
    std::int64_t counts_sent_ns_ = 0;
};

}  // namespace hf::s3
