// A directory of built modules: <key>.so, <key>.image, <key>.meta. Building the same module twice gives the same key and,
// the tools being deterministic, the same bytes; each file appears by rename, .meta last. A damaged entry is built anew.
#pragma once

#include <cstdint>
#include <string>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::wasm {

struct Built {
    std::string key;
    std::string so;
    std::string image;
    std::string meta;
    bool cached = false;
};

// sha256 over the module, wabt's and gcc's version, the flags and our ABI number.
[[nodiscard]] std::string cache_key(BytesView wasm, const std::string& gcc_version);

// Looks in `directory`, and builds into `into` what is not there or is damaged. Refused: the module; Unavailable or Io: the
// tools or the machine.
Result<Built> build_module(BytesView wasm, const std::string& directory, const std::string& into);

}  // namespace hf::wasm
