// Decides whether a record that was copied out of a ring is a message this link may carry. Stateless but for the count of
// records; reads only the private copy. Whoever reads a body has it from here.
#pragma once

#include <cstdint>

#include "abi/base/bytes.hpp"
#include "abi/layout/segment.hpp"
#include "message_traits.hpp"

namespace hf::verify {

// Why a record was refused. Few and fixed, because they are a metric's label.
enum class Reason : std::uint8_t {
    None,
    UnknownType,
    WrongSender,
    WrongKind,
    NotVerified,
    TypeMismatch,
    SequenceGap,
    WrongGeneration,
    RequestId,
    ReplyId,
};
[[nodiscard]] const char* text_of(Reason reason);

// One direction of one link.
class Checker {
public:
    // `sender` is who writes the records that this side reads.
    Checker(abi::From sender, abi::Kind kind, std::uint64_t generation)
        : sender_(sender),
          kind_bit_(static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind))),
          generation_(generation) {}

    // The envelope inside `payload`, with a body of the header's type; or null and the reason. The payload must be
    // aligned to 8 bytes and stay unchanged while the envelope is used.
    [[nodiscard]] const abi::Envelope* check(const layout::RecordHeader& header, BytesView payload);
    [[nodiscard]] Reason reason() const { return reason_; }

private:
    const abi::Envelope* refuse(Reason reason) {
        reason_ = reason;
        return nullptr;
    }

    abi::From sender_;
    std::uint8_t kind_bit_;
    std::uint64_t generation_;
    std::uint64_t seq_ = 0;  // of the last good record
    Reason reason_ = Reason::None;
};

}  // namespace hf::verify
