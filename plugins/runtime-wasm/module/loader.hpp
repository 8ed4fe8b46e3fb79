// Loads a built module into this process: hashes first, then the sealed copy of exactly the bytes that were hashed.
// A loaded module stays until the process ends. Call before the last filter is laid: nothing executable is mapped later.
#pragma once

#include <memory>
#include <string>

#include "abi/base/result.hpp"
#include "plugins/runtime-wasm/engine/program.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"
#include "plugins/runtime-wasm/module/meta.hpp"

namespace hf::wasm {

struct LoadedModule {
    Meta meta;
    std::unique_ptr<Program> program;
};

// `file` is the path of the .so, or the same without its extension. `hash` must be the module's key or the sha256 of
// its wasm; an empty one is refused. `meta_sha256` is what the supervisor vouches for; empty: the caller made the files
// itself.
Result<LoadedModule> load_module(const std::string& file,
                                 const std::string& hash,
                                 const hf_host_v1& host,
                                 Worker& worker,
                                 SlotPool& pool,
                                 const std::string& meta_sha256 = {});

// Loads a shared object and answers its descriptor, null when it has none. The handle is kept for ever.
Result<const hf_module_v1*> open_descriptor(const std::string& path);

}  // namespace hf::wasm
