// Answers as bytes: status line, fields, body, appended to a connection's output. Pure but for the Date cache.
// Actors' headers are checked byte by byte here: what leaves is always one well-formed message.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "abi/base/bytes.hpp"
#include "envelope_generated.h"

namespace hf::gateway {

// How the answer has to be framed; the request and the connection decide.
struct Framing {
    bool head_only = false;  // the request was HEAD
    bool http11 = true;      // of the request
    bool keep_alive = true;  // the connection goes on after this answer
    bool durable = false;    // the request said `Prefer: respond-async`
    // Another node asked, this: its answer says besides what became of it (peer_answer.hpp).
    std::optional<abi::PeerAsk> peer = std::nullopt;
    std::string_view lines = {};  // whole header lines that are added
};

// An answer of the gateway itself.
struct LocalAnswer {
    std::uint16_t status = 500;
    std::string_view reason = {};     // one word for programs
    std::string_view text = {};       // one sentence for people; any bytes
    std::uint32_t retry_after_s = 0;  // 0: no such field
    std::string_view allow = {};      // empty: no such field
    std::string_view version = {};    // Sec-WebSocket-Version, for 426; empty: no such field
    bool refused = false;             // a call of another node that is not let in, `text` says why
};

// One JSON object {"error": text, "reason": reason}; for 204 nothing.
void write_local(Bytes& out, const Framing& framing, const LocalAnswer& answer);

// A page of the supervisor. An empty content type is text/plain; one that is no field value is replaced by it.
void write_page(Bytes& out,
                const Framing& framing,
                std::uint16_t status,
                std::string_view content_type,
                BytesView body);

// An actor's answer; `headers` = flat name, value pairs. False: nothing was written, because the status is none (200..599
// are) or a field is not one; `out` is as before. Fields of the connection, Content-Length and those reserved for nodes are left out.
[[nodiscard]] bool write_actor(
    Bytes& out, const Framing& framing, std::uint16_t status, BytesView headers, BytesView body);

// The same for a body of `bytes` that the caller sends itself, if has_body.
[[nodiscard]] bool write_actor_head(Bytes& out,
                                    const Framing& framing,
                                    std::uint16_t status,
                                    BytesView headers,
                                    std::uint64_t bytes);
[[nodiscard]] bool has_body(const Framing& framing, std::uint16_t status);

// "101 Switching Protocols" to a WebSocket. False: as write_actor.
[[nodiscard]] bool write_switching(Bytes& out, std::string_view accept, BytesView headers);

// "100 Continue".
void write_continue(Bytes& out);

// True for a token, which is what a field's name and a subprotocol are.
[[nodiscard]] bool is_field_name(std::string_view name);
// True for what may stand behind it.
[[nodiscard]] bool is_field_value(std::string_view value);

}  // namespace hf::gateway
