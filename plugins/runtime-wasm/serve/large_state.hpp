// A unit's state as it comes and goes beside a record: a sealed memory file that the other side wrote, or that it will read.
#pragma once

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::wasm {

// The whole of a file that the SDK has judged. `bytes` is what its message declares; Invalid above kObjectBytesMax.
[[nodiscard]] Result<Bytes> read_state(const UniqueFd& file, std::uint64_t bytes);
// A file to carry in place of `state`; invalid and no error: a record holds it.
[[nodiscard]] Result<UniqueFd> state_file(BytesView state);

}  // namespace hf::wasm
