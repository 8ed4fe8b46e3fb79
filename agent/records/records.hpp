// The encodings behind core::Codec: holds and `store` as JSON whose unknown fields survive a rewrite, nodes as the text
// lines older nodes read, log entries as one verified flatbuffer. Stored bytes are judged, never believed: whatever a
// bucket answers, a decoder answers a struct within the bounds below or Corrupt with the reason. Pure, any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "agent/core/records.hpp"

namespace hf::records {

// Holds, store and node records. A hold with 4096 unsettled sources of 400 bytes is the largest we write.
inline constexpr std::size_t kTextRecordBytesMax = 4U << 20U;
// A log entry: a merged one carries up to 1 MiB of changes, a base up to 16 MiB of state, and the fold beside it.
inline constexpr std::size_t kEntryBytesMax = 20U << 20U;

// Stateless; one for the process is enough.
[[nodiscard]] const core::Codec& codec();

}  // namespace hf::records
