#include "plugins/gateway-http/frames.hpp"

#include <flatbuffers/util.h>
#include <wslay/wslay.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "abi/base/check.hpp"

namespace hf::gateway {

namespace {

// What a control frame's two bytes of length leave; a close's code takes two more.
constexpr std::size_t kControlBytesMax = 125;
constexpr std::size_t kReasonBytesMax = kControlBytesMax - 2;
// Pieces without a byte in one message. No client sends any; a thousand of them are no message.
constexpr std::size_t kEmptyPiecesMax = 1024;
// A message's buffer beyond this is given back with the message: an open socket costs little.
constexpr std::size_t kFirstMessageBytes = 512;

bool is_control(std::uint8_t opcode) {
    return (opcode & 0x8U) != 0;
}

// One for all sockets: between two whole frames wslay's side for writing keeps nothing.
class Writer {
public:
    Writer() {
        wslay_frame_callbacks callbacks{};
        callbacks.send_callback = append;
        HF_CHECK(wslay_frame_context_init(&context_, &callbacks, this) == 0, "memory for frames");
    }
    ~Writer() { wslay_frame_context_free(context_); }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    void write(Bytes& out, std::uint8_t opcode, BytesView data) {
        out_ = &out;
        wslay_frame_iocb frame{};
        frame.fin = 1;
        frame.opcode = opcode;
        frame.payload_length = data.size();
        frame.data = data.data();
        frame.data_length = data.size();
        HF_CHECK(wslay_frame_send(context_, &frame) == static_cast<ssize_t>(data.size()),
                 "a buffer takes a whole frame");
    }

private:
    static ssize_t append(const std::uint8_t* data, std::size_t size, int, void* user) {
        Bytes& out = *static_cast<Writer*>(user)->out_;
        out.insert(out.end(), data, data + size);
        return static_cast<ssize_t>(size);
    }

    wslay_frame_context_ptr context_ = nullptr;
    Bytes* out_ = nullptr;
};

void write_frame(Bytes& out, std::uint8_t opcode, BytesView data) {
    thread_local Writer writer;
    writer.write(out, opcode, data);
}

}  // namespace

bool is_close_code(std::uint16_t code) {
    if (code >= 3000 && code <= 4999) return true;
    return code >= 1000 && code <= 1014 && code != 1004 && code != kCloseNoCode &&
           code != kCloseBroken;
}

bool is_utf8(std::string_view text) {
    // The library's reader of one character looks at up to three bytes behind a first one, and a zero stops it: the end of
    // the text is read from a copy with zeros behind it.
    constexpr std::size_t kTail = 8;
    constexpr std::uint64_t kNotAscii = 0x8080808080808080U;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (static_cast<std::size_t>(end - at) >= kTail) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof(word));
        if ((word & kNotAscii) == 0)
            at += sizeof(word);
        else if (flatbuffers::FromUTF8(&at) < 0)
            return false;
    }
    std::array<char, 2 * kTail> tail{};
    const auto left = static_cast<std::size_t>(end - at);
    if (left != 0) std::memcpy(tail.data(), at, left);
    for (const char* rest = tail.data(); rest < tail.data() + left;)
        if (flatbuffers::FromUTF8(&rest) < 0) return false;
    return true;
}

std::string_view close_reason_of(std::string_view text) {
    std::string_view kept = text.substr(0, kReasonBytesMax);
    // A cut may have gone through a character, and that has up to three bytes to lose.
    for (int i = 0; i < 4 && !kept.empty(); ++i) {
        if (is_utf8(kept)) return kept;
        kept.remove_suffix(1);
    }
    return {};
}

void write_message(Bytes& out, bool binary, BytesView data) {
    write_frame(out, binary ? WSLAY_BINARY_FRAME : WSLAY_TEXT_FRAME, data);
}

void write_close(Bytes& out, std::uint16_t code, std::string_view reason) {
    std::array<std::uint8_t, kControlBytesMax> payload{};
    if (code == 0 || code == kCloseNoCode) return write_frame(out, WSLAY_CONNECTION_CLOSE, {});
    HF_CHECK(is_close_code(code) && reason.size() <= kReasonBytesMax, "a close that may be sent");
    payload[0] = static_cast<std::uint8_t>(code >> 8U);
    payload[1] = static_cast<std::uint8_t>(code & 0xFFU);
    std::copy(reason.begin(), reason.end(), payload.begin() + 2);
    write_frame(out, WSLAY_CONNECTION_CLOSE, {payload.data(), reason.size() + 2});
}

void write_ping(Bytes& out, std::string_view payload) {
    write_frame(out, WSLAY_PING, as_bytes(payload));
}

void write_pong(Bytes& out, std::string_view payload) {
    write_frame(out, WSLAY_PONG, as_bytes(payload));
}

struct FrameReader::State {
    explicit State(std::size_t max) : message_bytes_max(max) {
        wslay_frame_callbacks callbacks{};
        callbacks.recv_callback = give;
        HF_CHECK(wslay_frame_context_init(&context, &callbacks, this) == 0, "memory for a socket");
    }
    ~State() { wslay_frame_context_free(context); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    static ssize_t give(std::uint8_t* to, std::size_t room, int, void* user) {
        State& self = *static_cast<State*>(user);
        const std::size_t size = std::min(room, self.input.size());
        if (size == 0) return -1;
        std::memcpy(to, self.input.data(), size);
        self.input.remove_prefix(size);
        return static_cast<ssize_t>(size);
    }

    Got broken(std::uint16_t with, std::string_view why) {
        ended = true;
        close_code = with;
        close_reason = why;
        return Got::Broken;
    }
    Got frame_begins(const wslay_frame_iocb& frame);
    Got frame_ends(const wslay_frame_iocb& frame);
    Got close_came();

    std::size_t message_bytes_max;
    wslay_frame_context_ptr context = nullptr;
    std::string_view input;

    Bytes message;
    bool in_message = false;  // its last piece has not come
    bool whole = false;       // handed out: the next read begins a new one
    bool binary = false;
    std::size_t empty_pieces = 0;

    bool in_frame = false;
    std::uint64_t frame_bytes = 0;  // of its payload so far
    std::string control;            // payload of a control frame

    bool pinged = false;
    std::string ping;
    bool ponged = false;
    std::string expected_pong;
    std::uint16_t close_code = kCloseBroken;
    std::string close_reason;
    bool ended = false;  // closed or broken: nothing is read any more
};

FrameReader::Got FrameReader::State::frame_begins(const wslay_frame_iocb& frame) {
    if (frame.rsv != 0) return broken(kCloseProtocol, "no extension was agreed on");
    if (frame.mask == 0) return broken(kCloseProtocol, "a client's frames must be masked");
    if (is_control(frame.opcode)) {
        control.clear();
        if (frame.opcode > WSLAY_PONG) return broken(kCloseProtocol, "unknown kind of frame");
        return Got::NeedMore;
    }
    if (frame.opcode > WSLAY_BINARY_FRAME) return broken(kCloseProtocol, "unknown kind of frame");
    if ((frame.opcode == WSLAY_CONTINUATION_FRAME) != in_message)
        return broken(kCloseProtocol, "a piece of a message out of its turn");
    if (!in_message) {
        in_message = true;
        binary = frame.opcode == WSLAY_BINARY_FRAME;
        empty_pieces = 0;
        message.clear();
    }
    if (frame.payload_length > message_bytes_max - message.size())
        return broken(kCloseTooLarge,
                      "a message may have " + std::to_string(message_bytes_max) + " bytes");
    if (frame.payload_length == 0 && ++empty_pieces > kEmptyPiecesMax)
        return broken(kClosePolicy, "a message of empty pieces");
    return Got::NeedMore;
}

FrameReader::Got FrameReader::State::close_came() {
    ended = true;
    close_reason.clear();
    close_code = kCloseNoCode;
    if (control.empty()) return Got::Close;
    if (control.size() == 1) return broken(kCloseProtocol, "half a close code");
    close_code = static_cast<std::uint16_t>(static_cast<std::uint8_t>(control[0]) << 8U |
                                            static_cast<std::uint8_t>(control[1]));
    if (!is_close_code(close_code)) return broken(kCloseProtocol, "not a close code");
    close_reason = control.substr(2);
    if (!is_utf8(close_reason)) return broken(kCloseNotText, "the close's reason is not UTF-8");
    return Got::Close;
}

FrameReader::Got FrameReader::State::frame_ends(const wslay_frame_iocb& frame) {
    switch (frame.opcode) {
        case WSLAY_CONNECTION_CLOSE:
            return close_came();
        case WSLAY_PING:
            pinged = true;
            ping.swap(control);
            return Got::NeedMore;
        case WSLAY_PONG:
            ponged = ponged || (!expected_pong.empty() && control == expected_pong);
            return Got::NeedMore;
        default:
            break;
    }
    if (frame.fin == 0) return Got::NeedMore;
    in_message = false;
    if (!binary && !is_utf8(as_text(message)))
        return broken(kCloseNotText, "the text is not UTF-8");
    whole = true;
    return Got::Message;
}

FrameReader::FrameReader(std::size_t message_bytes_max)
    : state_(std::make_unique<State>(message_bytes_max)) {}
FrameReader::~FrameReader() = default;

FrameReader::Got FrameReader::read(std::string_view data, std::size_t& consumed) {
    State& s = *state_;
    consumed = 0;
    if (s.ended) {
        consumed = data.size();
        return Got::NeedMore;
    }
    if (s.whole) {
        s.whole = false;
        if (s.message.capacity() > kFirstMessageBytes) Bytes().swap(s.message);
    }
    s.input = data;
    Got got = Got::NeedMore;
    while (got == Got::NeedMore) {
        wslay_frame_iocb frame{};
        const ssize_t read = wslay_frame_recv(s.context, &frame);
        if (read == WSLAY_ERR_WANT_READ) break;
        if (read < 0) {
            got = s.broken(kCloseProtocol, "a frame's length is not allowed");
            break;
        }
        if (!s.in_frame) {
            s.in_frame = true;
            s.frame_bytes = 0;
            got = s.frame_begins(frame);
            if (got != Got::NeedMore) break;
        }
        s.frame_bytes += frame.data_length;
        if (is_control(frame.opcode))
            s.control += as_text({frame.data, frame.data_length});
        else
            s.message.insert(s.message.end(), frame.data, frame.data + frame.data_length);
        if (s.frame_bytes < frame.payload_length) continue;
        s.in_frame = false;
        got = s.frame_ends(frame);
    }
    // Behind a close there is nothing to be read.
    consumed = s.ended ? data.size() : data.size() - s.input.size();
    s.input = {};
    return got;
}

Bytes& FrameReader::message() {
    return state_->message;
}
bool FrameReader::is_binary() const {
    return state_->binary;
}
bool FrameReader::is_in_message() const {
    return state_->in_message;
}
std::size_t FrameReader::held_bytes() const {
    return state_->message.size();
}
std::uint16_t FrameReader::code() const {
    return state_->close_code;
}
const std::string& FrameReader::reason() const {
    return state_->close_reason;
}

bool FrameReader::take_ping(std::string& payload) {
    if (!state_->pinged) return false;
    state_->pinged = false;
    payload.swap(state_->ping);
    return true;
}

void FrameReader::expect_pong(std::string payload) {
    state_->ponged = false;
    state_->expected_pong = std::move(payload);
}

bool FrameReader::take_pong() {
    if (!state_->ponged) return false;
    expect_pong({});
    return true;
}

}  // namespace hf::gateway
