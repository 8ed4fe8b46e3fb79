// What a storage plugin answers whatever it stores in.
#pragma once

#include <cstdint>
#include <string_view>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "abi/sdk/plugin.hpp"

namespace hf::sdk {

// Answers a Get with the object that is there: in the record, or above kInlineObjectBytesMax as a sealed memory file, which is
// written here. A failure says why there is no such file: nothing was answered.
Result<void> reply_object(Context& context,
                          std::uint64_t req_id,
                          BytesView body,
                          std::string_view etag,
                          const abi::WriteId& write_id);

}  // namespace hf::sdk
