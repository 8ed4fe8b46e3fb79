// The one Channel there is. Declared here because making a link (open.cpp) and running it (channel.cpp) are two files.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "abi/layout/atomics.hpp"
#include "abi/layout/attach.hpp"
#include "abi/ring/bodies.hpp"
#include "abi/ring/endpoint.hpp"
#include "abi/ring/open_table.hpp"
#include "abi/verify/verify.hpp"
#include "agent/port/channel.hpp"

namespace hf::port {

// What the other end of the link is sent; ours no longer once it is.
struct PluginParts {
    UniqueFd to_plugin;
    UniqueFd from_plugin;
    UniqueFd hear;
    UniqueFd ring;
    UniqueFd control;
    layout::AttachMessage message{};
};

// The first size of the builder; it grows to the largest message and stays.
constexpr std::size_t kBuilderBytes = 4096;

class LinkChannel final : public Channel {
public:
    LinkChannel(ring::EndpointParts parts,
                PluginParts plugin,
                UniqueFd control,
                const layout::ConstLine& to_plugin,
                const layout::ConstLine& from_plugin,
                abi::Kind kind)
        : end_(std::move(parts)),
          plugin_(std::move(plugin)),
          control_(std::move(control)),
          checker_(abi::From::Plugin, kind, to_plugin.generation),
          generation_(to_plugin.generation),
          kind_(kind),
          fill_max_(to_plugin.ring_bytes - to_plugin.answer_bytes - to_plugin.record_max),
          peer_credit_(to_plugin.answer_credit),
          credit_(from_plugin.answer_bytes),
          final_records_max_(from_plugin.ring_bytes / layout::kRecordAlign),
          builder_(kBuilderBytes) {}

    ~LinkChannel() override { ring::discard_bodies(control_.get()); }
    LinkChannel(const LinkChannel&) = delete;
    LinkChannel& operator=(const LinkChannel&) = delete;

    UniqueFd take_plugin_end() override { return std::move(plugin_.control); }
    Result<void> attach(const std::vector<std::pair<std::string, int>>& extra) override;
    [[nodiscard]] int bell_fd() const override { return end_.bell_fd(); }
    [[nodiscard]] int control_fd() const override { return control_.get(); }

    flatbuffers::FlatBufferBuilder& builder() override {
        builder_.Clear();
        return builder_;
    }
    [[nodiscard]] std::uint64_t carry(std::shared_ptr<const SealedBody> body) override {
        carried_ = {++last_token_, std::move(body)};
        return carried_.token;
    }
    Sent notify_each(flatbuffers::Offset<abi::SocketSend> body,
                     std::span<const std::uint64_t> connections) override;
    void flush() override {
        pump();
        end_.flush();
    }
    Result<bool> drain(std::size_t budget,
                       const std::function<void(const Received&)>& handler) override;
    Result<void> drain_final(const std::function<void(const Received&)>& handler) override;
    [[nodiscard]] bool before_block() override {
        if (failed_) return true;
        pump();
        return end_.before_block(expecting(), starved());
    }

    [[nodiscard]] std::vector<std::pair<std::uint64_t, abi::Body>> open_requests() const override;
    void abandon(std::uint64_t req_id) override;
    [[nodiscard]] std::uint64_t progress() const override {
        return layout::load_relaxed(end_.peer().report.progress);
    }
    [[nodiscard]] std::uint64_t current_request() const override {
        return layout::load_relaxed(end_.peer().report.current);
    }
    [[nodiscard]] unsigned forbidden_syscall() const override {
        return layout::load_relaxed(end_.peer().report.forbidden_syscall);
    }
    [[nodiscard]] Usage usage() const override;

    // For before_block_all.
    [[nodiscard]] bool failed() const { return failed_.has_value(); }
    [[nodiscard]] bool expecting() const {
        return table_.size() > 0 || kind_ == abi::Kind::Gateway;
    }
    [[nodiscard]] bool starved() const { return !queue_.empty() || !answers_.empty(); }
    [[nodiscard]] ring::Endpoint& end() { return end_; }

protected:
    Sent send(abi::Body type,
              flatbuffers::Offset<void> body,
              std::uint64_t req_id,
              std::uint64_t reply_to,
              std::int64_t deadline_ns,
              std::uint64_t trace_id) override;

private:
    struct Carried {
        std::uint64_t token = 0;  // 0: none
        std::shared_ptr<const SealedBody> body = nullptr;
    };
    struct Waiting {
        std::uint64_t req_id;
        abi::Body type;
        Bytes payload;
        Carried carried;
        // Of a SocketSend to many: whom it is still for, from `next` on.
        std::vector<std::uint64_t> connections = {};
        std::size_t next = 0;
        [[nodiscard]] std::size_t bytes() const {
            return payload.size() + connections.size() * sizeof(std::uint64_t);
        }
    };

    // An answer for which S has no room yet; its reservation lasts until it is written, so peer_credit_ bounds them all.
    struct WaitingAnswer {
        std::uint32_t reserved;
        abi::Body type;
        Bytes payload;
        Carried carried;
    };

    Sent send_answer(abi::Body type, BytesView payload, std::uint64_t reply_to, Carried carried);
    Sent send_in_order(abi::Body type, BytesView payload, std::uint64_t req_id, Carried carried);
    bool write(abi::Body type,
               std::uint64_t req_id,
               BytesView payload,
               std::uint64_t fill_max,
               const Carried& carried);
    const char* receive_body(Received& received);
    void pump();
    bool pump_answers();
    bool pump_one();
    [[nodiscard]] BytesView finish(abi::Body type,
                                   flatbuffers::Offset<void> body,
                                   std::uint64_t reply_to,
                                   std::int64_t deadline_ns,
                                   std::uint64_t trace_id);
    std::size_t write_each(std::uint8_t* payload,
                           std::size_t bytes,
                           std::span<const std::uint64_t> connections);
    bool enqueue(Waiting waiting);
    bool pump_each(Waiting& first);
    void drop_first();
    void renumber(std::uint8_t* payload) const;
    Result<std::size_t> take(std::size_t budget,
                             const std::function<void(const Received&)>& handler);
    enum class Accepted : std::uint8_t { Yes, Drop, Fault };
    Accepted accept(const Received& received, std::size_t payload_bytes);
    Accepted accept_answer(const Received& received, std::size_t payload_bytes);
    Accepted accept_request(const Received& received);
    Accepted refuse(const char* rule) {
        rule_ = rule;
        return Accepted::Fault;
    }
    Error fault(const char* rule) {
        failed_ = fail(Code::Corrupt, rule);
        return *failed_;
    }

    mutable ring::Endpoint end_;
    PluginParts plugin_;
    UniqueFd control_;
    verify::Checker checker_;
    std::uint64_t generation_;
    abi::Kind kind_;
    std::uint64_t
        fill_max_;  // of S for requests and one-way messages: leaves free what answers may take
    std::uint32_t peer_credit_;  // what answers to the instance may take, in S and in answers_
    std::uint32_t peer_credit_used_ = 0;
    std::uint32_t credit_;  // of P: what answers to us may take
    std::uint32_t credit_used_ = 0;
    std::size_t final_records_max_;  // no ring holds more
    flatbuffers::FlatBufferBuilder builder_;
    std::uint64_t seq_ = 0;
    std::uint64_t last_peer_request_ = 0;
    ring::OpenTable table_;  // requests of ours
    ring::OpenTable asked_;  // requests of the instance
    std::deque<WaitingAnswer> answers_;
    std::size_t answers_bytes_ = 0;
    std::deque<Waiting> queue_;
    std::size_t queue_bytes_ = 0;
    std::size_t abandoned_ = 0;
    std::uint64_t late_answers_ = 0;
    Carried carried_;  // by the message being built
    std::uint64_t last_token_ = 0;
    ring::BodyInbox inbox_;
    const char* rule_ = "";
    std::optional<Error> failed_;
};

}  // namespace hf::port
