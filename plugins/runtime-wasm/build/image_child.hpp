// The image phase: a compiled module is loaded in a throw-away child, its start function, _initialize and actor_prepare
// run there under a deadline, and what its memory then holds becomes the image all its actors start from.
#pragma once

#include <cstdint>
#include <string>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::wasm {

// For the three calls together. An image is made once, so it may take what an event may not.
inline constexpr std::int64_t kImageCpuNs = 2'000'000'000;
inline constexpr std::int64_t kImageWallNs = 10'000'000'000;
// A module may grow its memory while it prepares, up to what it could have declared at the start.
inline constexpr std::uint32_t kImagePagesMax = 4'096;

// The image file's bytes for the shared object at path `so`. Refused: the guest trapped, ran over a deadline or called what an image must not depend on.
Result<Bytes> make_image(const std::string& so, const std::string& scratch);

}  // namespace hf::wasm
