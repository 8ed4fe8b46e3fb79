// Tests only: a supervisor that may break any rule of the link towards a real plugin process.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/layout/attach.hpp"
#include "abi/ring/descriptors.hpp"
#include "abi/ring/endpoint.hpp"
#include "agent/port/segments.hpp"
#include "envelope_generated.h"

namespace hf::rig {

class FakeSupervisor {
public:
    static constexpr std::uint32_t kRing = layout::kRingBytesMin;
    static constexpr std::uint64_t kGeneration = 3;

    FakeSupervisor() {
        auto made = port::make_segment_pair({kRing, kRing});
        HF_CHECK(made.ok(), "the test's segments");
        pair_ = std::move(made).value();
        const layout::ConstLine facts{layout::kSegmentMagic,
                                      layout::kLayoutVersion,
                                      layout::kHeaderBytes,
                                      kRing,
                                      1,
                                      kGeneration,
                                      kRecordBytesMax,
                                      kRing / 4,
                                      0,
                                      kRing / 4};
        std::memcpy(pair_.to_plugin.data(), &facts, sizeof(facts));
        HF_CHECK(::pwrite(pair_.from_plugin_fd.get(), &facts, sizeof(facts), 0) == sizeof(facts),
                 "the head of P");
        std::array<int, 2> ends{};
        HF_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0,
                 "a control socket");
        control_.reset(ends[0]);
        plugin_end_.reset(ends[1]);
        message_.magic = layout::kAttachMagic;
        message_.layout_version = layout::kLayoutVersion;
        message_.to_plugin_bytes = message_.from_plugin_bytes = kRing;
        message_.link_id = 1;
        message_.generation = kGeneration;
    }

    [[nodiscard]] layout::AttachMessage& message() { return message_; }
    [[nodiscard]] UniqueFd take_plugin_end() { return std::move(plugin_end_); }
    [[nodiscard]] ring::Endpoint& end() { return *end_; }

    void attach() {
        std::array<int, 2> there{};
        std::array<int, 2> back{};
        HF_CHECK(::pipe2(there.data(), O_CLOEXEC | O_NONBLOCK) == 0 &&
                     ::pipe2(back.data(), O_CLOEXEC | O_NONBLOCK) == 0,
                 "the test's bells");
        const UniqueFd hear(there[0]);
        const UniqueFd ring(back[1]);
        const std::array<int, layout::kLinkFds> fds{
            pair_.to_plugin_fd.get(), pair_.from_plugin_fd.get(), hear.get(), ring.get()};
        // SAFETY: plain data seen as bytes.
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&message_);
        HF_CHECK(ring::send_descriptors(control_.get(), {bytes, sizeof(message_)}, fds, 0) == 0,
                 "the test's attach message");
        ring::EndpointParts parts;
        parts.own = std::move(pair_.to_plugin);
        parts.peer = std::move(pair_.from_plugin);
        parts.own_ring_bytes = parts.peer_ring_bytes = kRing;
        parts.ring.reset(there[1]);
        parts.hear.reset(back[0]);
        parts.spin = false;
        end_ = std::make_unique<ring::Endpoint>(std::move(parts));
    }

    template <class T>
    void send(flatbuffers::FlatBufferBuilder& fbb,
              flatbuffers::Offset<T> body,
              std::uint64_t req_id = 0,
              std::uint64_t reply_to = 0,
              std::uint64_t skip_seq = 0) {
        const abi::Body type = abi::BodyTraits<T>::enum_value;
        seq_ += 1 + skip_seq;
        fbb.Finish(abi::CreateEnvelope(fbb, seq_, reply_to, kGeneration, 0, 0, type, body.Union()),
                   abi::EnvelopeIdentifier());
        raw({fbb.GetBufferPointer(), fbb.GetSize()}, static_cast<std::uint16_t>(type), req_id);
    }
    void raw(BytesView payload, std::uint16_t type, std::uint64_t req_id) {
        HF_CHECK(end_->out().write({static_cast<std::uint32_t>(payload.size()), type, 0, req_id},
                                   payload,
                                   ~std::uint64_t{0}),
                 "room in the test's ring");
        end_->flush();
    }
    void welcome() {
        flatbuffers::FlatBufferBuilder fbb;
        send(fbb, abi::CreateWelcome(fbb, 0, kGeneration));
    }
    void configure(std::uint64_t req_id = 1) {
        flatbuffers::FlatBufferBuilder fbb;
        send(fbb, abi::CreateConfigure(fbb), req_id);
    }

private:
    port::SegmentPair pair_;
    UniqueFd control_;
    UniqueFd plugin_end_;
    layout::AttachMessage message_{};
    std::unique_ptr<ring::Endpoint> end_;
    std::uint64_t seq_ = 0;
};

}  // namespace hf::rig
