#include "plugins/runtime-wasm/module/loader.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include "plugins/runtime-wasm/module/image.hpp"

namespace hf::wasm {

Result<const hf_module_v1*> open_descriptor(const std::string& path) {
    // NOW: lazy binding takes a loader lock in the middle of guest code. LOCAL: generated names are alike in all modules.
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        return fail(Code::Corrupt,
                    std::string("loading the compiled module: ") +
                        (why != nullptr ? why : "no reason given"));
    }
    return static_cast<const hf_module_v1*>(::dlsym(handle, "hf_module"));
}

Result<LoadedModule> load_module(const std::string& file,
                                 const std::string& hash,
                                 const hf_host_v1& host,
                                 Worker& worker,
                                 SlotPool& pool,
                                 const std::string& meta_sha256) {
    const std::string base = file.ends_with(".so") ? file.substr(0, file.size() - 3) : file;
    HF_ASSIGN(CachedModule cached, read_cached(base));
    if (!meta_sha256.empty() && meta_sha256 != cached.meta_sha256)
        return fail(Code::Corrupt, file + " is not the build that this node vouches for");
    if (hash != cached.meta.key && hash != cached.meta.wasm_sha256)
        return fail(Code::Corrupt,
                    file + " is module " + cached.meta.key + ", asked for was " +
                        (hash.empty() ? std::string("none") : hash));
    // The sealed copy is what was hashed; the file itself may be exchanged meanwhile by whoever owns the directory.
    HF_ASSIGN(UniqueFd sealed, sealed_memfd("hf-wasm-module", cached.so));
    // Never closed: the loader knows objects by name, and a number used again would be answered with the old module.
    std::string copy = "/proc/self/fd/" + std::to_string(sealed.release());
    // Without /proc (an ordinary user's jail may not mount one) the loader has no name for the copy. There the directory is
    // a read-only bind, and who could exchange the file outside of it is the user the whole node runs as.
    if (::access(copy.c_str(), R_OK) != 0) copy = base + ".so";
    HF_ASSIGN(const hf_module_v1* module, open_descriptor(copy));
    HF_ASSIGN(Image image, decode_image(cached.image));
    LoadedModule out;
    HF_ASSIGN(out.program, Program::create(module, host, std::move(image), worker, pool));
    out.meta = std::move(cached.meta);
    return out;
}

}  // namespace hf::wasm
