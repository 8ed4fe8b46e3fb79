// The jail's end of the report socket. If nobody listens any more the supervisor is gone and so shall we be.
#pragma once

#include <string>

#include "abi/base/result.hpp"
#include "abi/layout/jail_spec.hpp"

namespace hf::jail {

// Sends one report, with a descriptor beside it when `fd` is not -1. False: the supervisor does not listen any more.
bool send_report(int socket, const layout::JailReport& report, int fd = -1);

// Sends bytes and a descriptor; false when the peer is gone.
bool send_packet(int socket, BytesView bytes, int fd);

struct Packet {
    Bytes bytes;
    int fd = -1;  // the receiver's, close-on-exec
    bool end = false;
};
// Receives one packet of at most `most` bytes; empty and `end` when the peer is gone.
[[nodiscard]] Result<Packet> receive_packet(int socket, std::size_t most);

}  // namespace hf::jail
