#include "plugins/runtime-wasm/serve/large_state.hpp"

#include <string>

#include "abi/base/limits.hpp"
#include "abi/ring/bodies.hpp"

namespace hf::wasm {

Result<Bytes> read_state(const UniqueFd& file, std::uint64_t bytes) {
    if (bytes > kObjectBytesMax)
        return fail(Code::Invalid,
                    "a stored state of " + std::to_string(bytes) + " bytes, at most " +
                        std::to_string(kObjectBytesMax) + " are stored");
    Bytes out(bytes);
    if (!ring::read_body(file.get(), out.data(), out.size(), 0))
        return fail(Code::Io, "the stored state's memory file could not be read");
    return out;
}

Result<UniqueFd> state_file(BytesView state) {
    if (state.size() <= kPayloadBytesMax) return UniqueFd();
    return ring::sealed_body("holdfast-state", state);
}

}  // namespace hf::wasm
