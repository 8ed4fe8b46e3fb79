// WebSocket frames and messages without I/O, the server's side (RFC 6455, no extensions). wslay reads and writes frames
// (frames.cpp is the one file that names it); what may follow what, how large a message may be and which closes are
// closes is judged here. Outcomes do not depend on how the bytes were cut into pieces.
// Not responsible for handshakes, time or what is done with a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "abi/base/bytes.hpp"

namespace hf::gateway {

// Codes of RFC 6455 and its registry, as far as this process says them itself.
inline constexpr std::uint16_t kCloseProtocol = 1002;
inline constexpr std::uint16_t kCloseNoCode = 1005;   // never sent: the close carried none
inline constexpr std::uint16_t kCloseBroken = 1006;   // never sent: there was no close
inline constexpr std::uint16_t kCloseNotText = 1007;  // text that is not UTF-8
inline constexpr std::uint16_t kClosePolicy = 1008;
inline constexpr std::uint16_t kCloseTooLarge = 1009;
inline constexpr std::uint16_t kCloseInternal = 1011;
inline constexpr std::uint16_t kCloseRestart = 1012;
inline constexpr std::uint16_t kCloseTryLater = 1013;

// True for codes that a close frame may carry.
[[nodiscard]] bool is_close_code(std::uint16_t code);
[[nodiscard]] bool is_utf8(std::string_view text);
// The longest beginning that is valid UTF-8 and not longer than a close frame holds.
[[nodiscard]] std::string_view close_reason_of(std::string_view text);

// Whole frames, appended.
void write_message(Bytes& out, bool binary, BytesView data);
// Code 0 or kCloseNoCode: without one. Others must be close codes.
void write_close(Bytes& out, std::uint16_t code, std::string_view reason);
void write_ping(Bytes& out, std::string_view payload);  // at most 125 bytes
void write_pong(Bytes& out, std::string_view payload);

class FrameReader {
public:
    enum class Got : std::uint8_t {
        NeedMore,  // everything was taken
        Message,   // message() is whole; what follows was not looked at
        Close,     // the client's close: code() and reason()
        Broken,  // the client broke the protocol: to be closed with code() and reason(); nothing more can be read
    };

    explicit FrameReader(std::size_t message_bytes_max);
    ~FrameReader();
    FrameReader(const FrameReader&) = delete;
    FrameReader& operator=(const FrameReader&) = delete;

    // Takes bytes until something is to be told. The reader keeps up to 4 KiB of what it says it consumed, so after
    // Message it is called again before more is received, with what is left or nothing.
    Got read(std::string_view data, std::size_t& consumed);
    // After Message; taken out by swapping or moving. The next read() begins a new one.
    [[nodiscard]] Bytes& message();
    [[nodiscard]] bool is_binary() const;
    // Bytes of a message that is not whole yet.
    [[nodiscard]] bool is_in_message() const;
    [[nodiscard]] std::size_t held_bytes() const;

    [[nodiscard]] std::uint16_t code() const;
    [[nodiscard]] const std::string& reason() const;
    // True: a ping came since the last call; only the last of several needs an answer.
    bool take_ping(std::string& payload);
    // Only a pong that answers this ping counts; others are allowed and mean nothing.
    void expect_pong(std::string payload);
    // True, once: it came.
    bool take_pong();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace hf::gateway
