// The plugin's end of a link without any of the SDK's manners: every number of a record is the caller's choice.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "abi/base/bytes.hpp"
#include "abi/ring/endpoint.hpp"
#include "abi/sdk/attach.hpp"
#include "envelope_generated.h"

namespace hf::hostile {

// What is true of the next message unless an attack says otherwise.
struct Lies {
    std::int64_t seq_step = 1;
    std::uint64_t generation_xor = 0;
    const char* identifier = nullptr;
};

class Link {
public:
    explicit Link(sdk::Attachment attachment)
        : generation(attachment.facts_out.generation),
          ring_bytes(attachment.facts_out.ring_bytes),
          bell(attachment.parts.ring.get()),
          end(std::move(attachment.parts)) {}

    // A finished envelope. `body` belongs to `builder`.
    Bytes finish(abi::Body type,
                 flatbuffers::Offset<void> body,
                 std::uint64_t reply_to,
                 const Lies& lies = {});
    // Puts it into the ring with this header; waits for nothing. False: no room.
    bool write(abi::Body type, std::uint64_t req_id, BytesView payload, std::uint16_t flags = 0);
    template <class T>
    bool say(flatbuffers::Offset<T> body,
             std::uint64_t reply_to = 0,
             std::uint64_t req_id = 0,
             const Lies& lies = {}) {
        const abi::Body type = abi::BodyTraits<T>::enum_value;
        return write(type, req_id, finish(type, body.Union(), reply_to, lies));
    }
    // The segment's words, 8 bytes each, from its start; and the ring behind them.
    [[nodiscard]] std::uint64_t& word(std::size_t offset) {
        // SAFETY: the segment is ours, page-aligned and larger than any offset that is asked for.
        return *reinterpret_cast<std::uint64_t*>(base() + offset);
    }
    [[nodiscard]] std::span<std::uint8_t> ring() {
        return {base() + layout::kHeaderBytes, ring_bytes};
    }
    // Where the next record will lie, as the ring counts.
    [[nodiscard]] std::uint64_t tail() { return end.own().producer.tail; }
    // A record header at the tail, whatever it says, and a tail moved on by `advance`.
    void raw_record(const layout::RecordHeader& header, std::uint64_t advance);
    void publish_tail(std::uint64_t tail);
    void ring_bell();

    std::uint64_t generation;
    std::uint32_t ring_bytes;
    int bell;  // the end that wakes the supervisor; belongs to `end`
    ring::Endpoint end;
    flatbuffers::FlatBufferBuilder builder;
    std::uint64_t seq = 0;

private:
    [[nodiscard]] std::uint8_t* base() {
        // SAFETY: the header is the segment's first byte.
        return reinterpret_cast<std::uint8_t*>(&end.own());
    }
};

// What the settings say.
struct Plan {
    std::string mode = "good";
    std::uint64_t after = 20;  // requests that are answered well before
    std::uint64_t at = 0;      // offset of a word, position of a byte, size: the attack's own
    std::uint64_t value = 0;
};

// Goes wrong once. `request` is the open request of the supervisor, `type` its type. True: the request is answered (or
// shall never be); false: answer it well.
bool attack(Link& link, const Plan& plan, std::uint64_t request, int control_fd);
// What an attack does between requests for as long as the process lives. True: it does something, do not block.
bool between(Link& link, const Plan& plan);

}  // namespace hf::hostile
