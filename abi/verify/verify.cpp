#include "abi/verify/verify.hpp"

#include "abi/base/limits.hpp"

namespace hf::verify {

const char* text_of(Reason reason) {
    switch (reason) {
        case Reason::None:
            return "none";
        case Reason::UnknownType:
            return "unknown message type";
        case Reason::WrongSender:
            return "message not allowed from this side";
        case Reason::WrongKind:
            return "message not allowed on a link of this kind";
        case Reason::NotVerified:
            return "bytes that are no valid envelope";
        case Reason::TypeMismatch:
            return "record type differs from the body's type";
        case Reason::SequenceGap:
            return "gap in the sequence numbers";
        case Reason::WrongGeneration:
            return "wrong generation";
        case Reason::RequestId:
            return "request id missing, or on a message that is no request";
        case Reason::ReplyId:
            return "reply_to missing, or on a message that is no answer";
    }
    return "unknown";
}

const abi::Envelope* Checker::check(const layout::RecordHeader& header, BytesView payload) {
    if (header.type == 0 || header.type >= abi::kMessageCount) return refuse(Reason::UnknownType);
    const auto type = static_cast<abi::Body>(header.type);
    const abi::MessageTraits& traits = abi::traits_of(type);
    if (traits.from != sender_ && traits.from != abi::From::Both)
        return refuse(Reason::WrongSender);
    if ((traits.kinds & kind_bit_) == 0) return refuse(Reason::WrongKind);

    // The verifier reads a root offset and an identifier before it compares lengths.
    constexpr std::size_t kBytesMin = 8;
    if (payload.size() < kBytesMin) return refuse(Reason::NotVerified);
    flatbuffers::Verifier verifier(
        payload.data(), payload.size(), kVerifyDepthMax, traits.max_tables);
    if (!abi::VerifyEnvelopeBuffer(verifier)) return refuse(Reason::NotVerified);

    const abi::Envelope* envelope = abi::GetEnvelope(payload.data());
    // The verifier accepts an unknown or absent union member unseen; equality with a known type closes that.
    if (envelope->body_type() != type || envelope->body() == nullptr)
        return refuse(Reason::TypeMismatch);
    if (envelope->generation() != generation_) return refuse(Reason::WrongGeneration);
    if (envelope->seq() != seq_ + 1) return refuse(Reason::SequenceGap);
    if ((header.req_id != 0) != traits.request) return refuse(Reason::RequestId);
    if ((envelope->reply_to() != 0) != traits.answer) return refuse(Reason::ReplyId);
    ++seq_;
    return envelope;
}

}  // namespace hf::verify
