#include "plugins/runtime-wasm/answer.hpp"

#include <algorithm>

namespace hf::wasm {

namespace {

// Sentences in answers: Activated and Prepared have 2 KiB for everything.
constexpr std::size_t kErrorBytesMax = 1'024;

using Builder = flatbuffers::FlatBufferBuilder;
template <class T>
using Offset = flatbuffers::Offset<T>;
template <class T>
using Vector = flatbuffers::Vector<T>;

Offset<Vector<std::uint8_t>> bytes_in(Builder& fbb, const Bytes& bytes) {
    return bytes.empty() ? Offset<Vector<std::uint8_t>>()
                         : fbb.CreateVector(bytes.data(), bytes.size());
}

abi::DeliverStatus status_of(Ended ended) {
    switch (ended) {
        case Ended::Ok:
            return abi::DeliverStatus::Ok;
        case Ended::NotResident:
            return abi::DeliverStatus::NotResident;
        case Ended::Failed:
            return abi::DeliverStatus::Failed;
        case Ended::Trapped:
            return abi::DeliverStatus::Trapped;
        case Ended::CpuDeadline:
            return abi::DeliverStatus::CpuDeadline;
        case Ended::WallDeadline:
            return abi::DeliverStatus::WallDeadline;
        case Ended::Limit:
            return abi::DeliverStatus::Limit;
        case Ended::Preempted:  // not answered
        case Ended::Calling:
            return abi::DeliverStatus::Calling;
    }
    return abi::DeliverStatus::Failed;
}

Offset<Vector<Offset<abi::Send>>> sends_in(Builder& fbb, const Event& event) {
    if (event.sends.empty()) return {};
    std::vector<Offset<abi::Send>> out;
    out.reserve(event.sends.size());
    for (const OutwardSend& send : event.sends) {
        const auto target = fbb.CreateString(send.target);
        const auto method = fbb.CreateString(send.method);
        out.push_back(abi::CreateSend(fbb, target, method, bytes_in(fbb, send.payload)));
    }
    return fbb.CreateVector(out);
}

Offset<Vector<Offset<abi::SocketCommand>>> sockets_in(Builder& fbb, const Event& event) {
    if (event.sockets.empty()) return {};
    std::vector<Offset<abi::SocketCommand>> out;
    out.reserve(event.sockets.size());
    for (const SocketCommand& command : event.sockets)
        out.push_back(abi::CreateSocketCommand(fbb,
                                               command.connection,
                                               command.close,
                                               command.code,
                                               command.binary,
                                               bytes_in(fbb, command.data)));
    return fbb.CreateVector(out);
}

Offset<abi::Call> call_in(Builder& fbb, const Ran& ran) {
    const OutwardCall& call = ran.output->call;
    const auto target = fbb.CreateString(call.what.target);
    const auto method = fbb.CreateString(call.what.method);
    const auto payload = bytes_in(fbb, call.what.payload);
    return abi::CreateCall(fbb, call.n, target, method, payload, ran.timeout_ms);
}

}  // namespace

Offset<flatbuffers::String> error_in(Builder& fbb, std::string_view why) {
    const std::string_view cut = why.substr(0, kErrorBytesMax);
    return cut.empty() ? Offset<flatbuffers::String>() : fbb.CreateString(cut.data(), cut.size());
}

Offset<abi::Delivered> delivered(Builder& fbb,
                                 std::uint64_t activation,
                                 const Ran& ran,
                                 std::uint64_t body_token) {
    const Event& event = *ran.output;
    // Nothing of an event leaves that did not end well, and of one that waits only its call.
    const bool whole = ran.ended == Ended::Ok;
    const auto error = error_in(fbb, ran.error);
    Offset<Vector<std::uint8_t>> headers;
    Offset<Vector<std::uint8_t>> body;
    Offset<Vector<Offset<abi::Send>>> sends;
    Offset<Vector<Offset<abi::SocketCommand>>> sockets;
    Offset<abi::Alarm> alarm;
    Offset<abi::Call> call;
    if (whole) {
        headers = bytes_in(fbb, event.reply_headers);
        body = bytes_in(fbb, event.reply_body);
        sends = sends_in(fbb, event);
        sockets = sockets_in(fbb, event);
        if (event.alarm_touched) alarm = abi::CreateAlarm(fbb, event.alarm_ms, event.alarm_ms == 0);
    }
    if (ran.ended == Ended::Calling) call = call_in(fbb, ran);
    const auto changes = bytes_in(fbb, ran.changes);
    abi::DeliveredBuilder out(fbb);
    out.add_activation(activation);
    out.add_status(status_of(ran.ended));
    out.add_error(error);
    out.add_reply_status(whole ? event.reply_status : std::uint16_t{0});
    out.add_reply_headers(headers);
    out.add_reply_body(body);
    // What http_reply said stands in the status.
    out.add_replied(whole && event.replied && event.kind == Kind::Call);
    out.add_changes(changes);
    out.add_state_bytes(ran.state_bytes);
    out.add_alarm(alarm);
    out.add_sends(sends);
    out.add_sockets(sockets);
    out.add_passivate(whole && event.passivate);
    out.add_call(call);
    // Wall time of the run: this thread does nothing else meanwhile, and its CPU clock costs a third of an event to read.
    out.add_cpu_us(
        static_cast<std::uint32_t>(std::min<std::int64_t>(ran.elapsed_ns / 1000, UINT32_MAX)));
    out.add_resident(ran.ended != Ended::NotResident);
    if (body_token != 0) {
        out.add_body_token(body_token);
        out.add_body_bytes(event.reply_large_bytes);
    }
    return out.Finish();
}

}  // namespace hf::wasm
