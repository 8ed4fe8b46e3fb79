// The functions behind codec(), one file per encoding so that each names one library. Private to this room.
#pragma once

#include "agent/core/records.hpp"

namespace hf::records {

[[nodiscard]] Bytes encode_hold(const core::HoldRecord& record);
[[nodiscard]] Result<core::HoldRecord> decode_hold(BytesView bytes);
[[nodiscard]] Bytes encode_store(const core::StoreRecord& record);
[[nodiscard]] Result<core::StoreRecord> decode_store(BytesView bytes);

[[nodiscard]] Bytes encode_node(const core::NodeRecord& record);
[[nodiscard]] Result<core::NodeRecord> decode_node(BytesView bytes);

[[nodiscard]] Bytes encode_entry(const core::LogEntry& entry);
[[nodiscard]] Result<core::LogEntry> decode_entry(BytesView bytes);

}  // namespace hf::records
