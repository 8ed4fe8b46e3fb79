// A storage plugin's real binary as the contract sees it: started over a real link, without jail, killed and started
// again at will. One thread; every call waits for its answers, kAnswerMs at most.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/port/channel.hpp"
#include "tests/abi/rig.hpp"
#include "tests/conformance/storage_contract.hpp"

namespace hf::conformance {

using Settings = std::vector<std::pair<std::string, std::string>>;

class LinkedStorage final : public StorageUnderTest {
public:
    LinkedStorage(std::string binary, Settings settings, Traits traits);

    // Starts the process and waits for Ready. The reason when it is not ready.
    Result<void> start();
    // Asks it to finish; its exit code, or -1 when it did not end by itself.
    int shed();
    // kill -9, and whatever it had published before.
    void kill();
    [[nodiscard]] pid_t pid() const { return started_.child.pid(); }
    // The link's fault or a missing answer, empty when all is well.
    [[nodiscard]] const std::string& trouble() const { return trouble_; }
    [[nodiscard]] const std::vector<std::pair<std::string, std::uint64_t>>& counters() const {
        return counters_;
    }
    [[nodiscard]] std::size_t counters_messages() const { return counters_messages_; }

    [[nodiscard]] Traits traits() const override { return traits_; }
    GotReply get(const std::string& key) override;
    std::vector<StoredReply> put_all(std::span<const PutCall> calls) override;
    DeletedReply erase(const DeleteCall& call) override;
    ListedReply list(const ListCall& call) override;
    ProbedReply probe() override;
    std::vector<StoredReply> put_and_kill(std::span<const PutCall> calls,
                                          std::vector<bool>& answered) override;

private:
    std::uint64_t ask_put(const PutCall& call);
    template <class Reply, class Read>
    Reply await(std::uint64_t req_id, abi::Body type, const Read& read);
    void note(const port::Received& received);

    std::string binary_;
    Settings settings_;
    Traits traits_;
    port::SegmentPool pool_;
    rig::Started started_;
    std::uint64_t generation_ = 0;
    std::uint64_t next_req_ = 1;
    std::string trouble_;
    std::vector<std::pair<std::string, std::uint64_t>> counters_;
    std::size_t counters_messages_ = 0;
};

}  // namespace hf::conformance
