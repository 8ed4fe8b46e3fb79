#include "plugins/runtime-wasm/build/cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wabt/config.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "plugins/runtime-wasm/build/compile.hpp"
#include "plugins/runtime-wasm/build/image_child.hpp"
#include "plugins/runtime-wasm/build/translate.hpp"
#include "plugins/runtime-wasm/engine/program.hpp"
#include "plugins/runtime-wasm/module/image.hpp"
#include "plugins/runtime-wasm/module/meta.hpp"

namespace hf::wasm {

namespace {

Result<void> place(const std::string& path, BytesView bytes) {
    std::string temporary = path + ".XXXXXX";
    const UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!fd.valid()) return fail_errno(errno, "creating a file beside " + path);
    std::size_t done = 0;
    int why = 0;
    while (done < bytes.size() && why == 0) {
        const ssize_t put = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
        if (put >= 0)
            done += static_cast<std::size_t>(put);
        else if (errno != EINTR)
            why = errno;
    }
    if (why == 0 && ::fchmod(fd.get(), 0644) != 0) why = errno;
    if (why == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) why = errno;
    if (why == 0) return {};
    ::unlink(temporary.c_str());
    return fail_errno(why, "writing " + path);
}

}  // namespace

std::string cache_key(BytesView wasm, const std::string& gcc_version) {
    const std::string facts = sha256_hex(wasm) + "\nwabt " WABT_VERSION_STRING "\n" + gcc_version +
                              "\n" + kCompileFlags + "\nabi " + std::to_string(HF_MODULE_ABI);
    return sha256_hex(as_bytes(facts));
}

Result<Built> build_module(BytesView wasm, const std::string& directory, const std::string& into) {
    HF_ASSIGN(const std::string gcc, compiler_version());
    Built out;
    out.key = cache_key(wasm, gcc);
    const auto name_files = [&out](const std::string& where) {
        const std::string base = where + "/" + out.key;
        out.so = base + ".so";
        out.image = base + ".image";
        out.meta = base + ".meta";
    };
    name_files(directory);
    if (const auto known = read_cached(directory + "/" + out.key);
        known && known->meta.key == out.key) {
        out.cached = true;
        return out;
    }
    name_files(into);

    HF_ASSIGN(const Translation translation, translate(wasm, true));
    HF_ASSIGN(const Scratch scratch, Scratch::create());
    HF_ASSIGN(const Bytes so, compile(translation, scratch.path()));
    HF_ASSIGN(const Bytes image, make_image(scratch.path() + "/m.so", scratch.path()));
    HF_ASSIGN(const std::uint32_t pages, image_pages(image));

    Meta meta;
    meta.key = out.key;
    meta.wasm_sha256 = sha256_hex(wasm);
    meta.so_sha256 = sha256_hex(so);
    meta.image_sha256 = sha256_hex(image);
    meta.abi = HF_MODULE_ABI;
    meta.memory_pages = pages;
    meta.memory_pages_max = translation.pages_max;
    meta.exports = translation.exports;
    meta.wabt = WABT_VERSION_STRING;
    meta.gcc = gcc;
    HF_TRY(place(out.so, so));
    HF_TRY(place(out.image, image));
    HF_TRY(place(out.meta, as_bytes(to_json(meta))));
    return out;
}

}  // namespace hf::wasm
