// Tests only: the other end of a Channel in the same process, free to break any rule of the link.
#pragma once

#include <utility>

#include "abi/base/check.hpp"
#include "abi/ring/endpoint.hpp"
#include "abi/sdk/attach.hpp"
#include "agent/port/channel.hpp"

namespace hf::port {

// What a sender may lie about; the defaults are the truth.
struct Lies {
    std::uint64_t req_id = 0;
    std::uint64_t reply_to = 0;
    std::uint64_t skip_seq = 0;
    std::uint64_t generation = 0;   // 0: the link's
    std::uint16_t record_type = 0;  // 0: the body's
};

class FakePlugin {
public:
    explicit FakePlugin(Channel& channel)
        : control_(channel.take_plugin_end()),
          attachment_(attach(channel, control_.get())),
          end_(std::move(attachment_.parts)) {}

    [[nodiscard]] ring::Endpoint& end() { return end_; }
    [[nodiscard]] sdk::Attachment& attachment() { return attachment_; }
    [[nodiscard]] const layout::ConstLine& facts() const { return attachment_.facts_out; }
    [[nodiscard]] flatbuffers::FlatBufferBuilder& builder() {
        fbb_.Clear();
        return fbb_;
    }
    void hang_up() { control_.reset(); }
    [[nodiscard]] int control_fd() const { return control_.get(); }

    template <class T>
    bool send(flatbuffers::Offset<T> body, const Lies& lies = {}, bool flush = true) {
        const abi::Body type = abi::BodyTraits<T>::enum_value;
        seq_ += 1 + lies.skip_seq;
        fbb_.Finish(abi::CreateEnvelope(fbb_,
                                        seq_,
                                        lies.reply_to,
                                        lies.generation != 0 ? lies.generation : facts().generation,
                                        0,
                                        0,
                                        type,
                                        body.Union()),
                    abi::EnvelopeIdentifier());
        const BytesView payload{fbb_.GetBufferPointer(), fbb_.GetSize()};
        const bool fits = end_.out().write(
            {static_cast<std::uint32_t>(payload.size()),
             lies.record_type != 0 ? lies.record_type : static_cast<std::uint16_t>(type),
             0,
             lies.req_id},
            payload,
            ~std::uint64_t{0});
        if (flush) end_.flush();
        return fits;
    }

    // The next record from the supervisor; its envelope, or null. Good until the next call.
    const abi::Envelope* receive(layout::RecordHeader* header = nullptr) {
        layout::RecordHeader local{};
        BytesView payload;
        end_.awake();
        const ring::Consumer::Next next = end_.in().next(local, payload);
        if (header != nullptr) *header = local;
        return next == ring::Consumer::Next::Record ? abi::GetEnvelope(payload.data()) : nullptr;
    }

private:
    static sdk::Attachment attach(Channel& channel, int control_fd) {
        HF_CHECK(channel.attach({}).ok(), "the test's attach message");
        auto got = sdk::receive_attachment(control_fd);
        HF_CHECK(got.ok(), "the test's attachment");
        return std::move(got).value();
    }

    UniqueFd control_;
    sdk::Attachment attachment_;
    ring::Endpoint end_;
    flatbuffers::FlatBufferBuilder fbb_;
    std::uint64_t seq_ = 0;
};

}  // namespace hf::port
