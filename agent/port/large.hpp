// What the core keeps in memory and no record holds, a unit's state: into a sealed memory file on its way to an instance, and
// out of one that an instance sent. Such a file was judged when it came; it is read once, into memory of our own.
#pragma once

#include <memory>

#include "abi/base/bytes.hpp"
#include "agent/port/channel.hpp"

namespace hf::port {

// A sealed file of these bytes; null when this process can make none (memory, descriptors).
[[nodiscard]] std::shared_ptr<const SealedBody> state_file(BytesView bytes);
// All of it. False: it could not be read.
[[nodiscard]] bool read_state(const SealedBody& file, Bytes& out);

}  // namespace hf::port
