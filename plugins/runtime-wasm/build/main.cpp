// holdfast-wasm-build: turns one wasm module into what runtime-wasm loads.
//
//   holdfast-wasm-build --module FILE --cache DIR [--out DIR]   builds what the cache does not have, into --out, else into
//                                                               the cache; one JSON line on standard output
//   holdfast-wasm-build --inspect FILE                          looks at the policy only; one JSON line
//
// Runs in a jail of its own, short-lived, without a network; the compiler sees nothing but a scratch directory.
// Exit: 0 done, 2 wrong usage, 3 the module is refused (the reason on standard error), 4 a tool or the machine failed.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "abi/base/clock.hpp"
#include "plugins/runtime-wasm/build/cache.hpp"
#include "plugins/runtime-wasm/build/policy.hpp"
#include "plugins/runtime-wasm/build/translate.hpp"
#include "plugins/runtime-wasm/module/meta.hpp"

namespace {

constexpr int kUsage = 2;
constexpr int kRefused = 3;
constexpr int kFailed = 4;

int usage(const std::string& why) {
    std::fprintf(
        stderr,
        "holdfast-wasm-build: %s; use --module FILE --cache DIR [--out DIR], or --inspect FILE\n",
        why.c_str());
    return kUsage;
}

int report(const hf::Error& error) {
    const bool refused = error.code == hf::Code::Refused;
    std::fprintf(stderr,
                 "%s%s\n",
                 refused ? "module refused: " : "holdfast-wasm-build: ",
                 error.message.c_str());
    return refused ? kRefused : kFailed;
}

int print(const nlohmann::ordered_json& json) {
    std::printf("%s\n", json.dump().c_str());
    return std::fflush(stdout) == 0 ? 0 : kFailed;
}

// One byte more than allowed is read as "too large" by name, not by the reader's own words.
hf::Result<hf::Bytes> read_module(const std::string& path) {
    auto bytes = hf::wasm::read_file(path, hf::wasm::kModuleBytesMax);
    if (!bytes && bytes.error().code == hf::Code::Invalid)
        return hf::fail(hf::Code::Refused, bytes.error().message);
    return bytes;
}

int inspect(const std::string& path) {
    const auto wasm = read_module(path);
    if (!wasm) return report(wasm.error());
    const auto facts = hf::wasm::translate(*wasm, false);
    if (!facts) return report(facts.error());
    return print({{"ok", true},
                  {"wasm_sha256", hf::wasm::sha256_hex(*wasm)},
                  {"memory_pages", facts->pages},
                  {"memory_pages_max", facts->pages_max},
                  {"imports", facts->imports},
                  {"exports", facts->exports}});
}

int build(const std::string& path, const std::string& cache, const std::string& into) {
    const std::int64_t start = hf::monotonic_ns();
    const auto wasm = read_module(path);
    if (!wasm) return report(wasm.error());
    const auto built = hf::wasm::build_module(*wasm, cache, into.empty() ? cache : into);
    if (!built) return report(built.error());
    return print({{"key", built->key},
                  {"so", built->so},
                  {"image", built->image},
                  {"meta", built->meta},
                  {"cached", built->cached},
                  {"millis", (hf::monotonic_ns() - start) / 1'000'000}});
}

}  // namespace

int main(int argc, char** argv) {
    std::string module;
    std::string cache;
    std::string into;
    std::string inspected;
    for (int i = 1; i < argc; ++i) {
        const std::string_view arg = argv[i];
        if (arg == "--version") {
            std::puts("holdfast-wasm-build " HF_VERSION);
            return 0;
        }
        if (arg == "--help") {
            std::puts("holdfast-wasm-build --module FILE --cache DIR [--out DIR] | --inspect FILE");
            return 0;
        }
        std::string* to = arg == "--module"    ? &module
                          : arg == "--cache"   ? &cache
                          : arg == "--out"     ? &into
                          : arg == "--inspect" ? &inspected
                                               : nullptr;
        if (to == nullptr) return usage("unknown argument " + std::string(arg));
        if (++i >= argc) return usage(std::string(arg) + " needs a path");
        *to = argv[i];
    }
    if (!inspected.empty() && module.empty() && cache.empty() && into.empty())
        return inspect(inspected);
    if (inspected.empty() && !module.empty() && !cache.empty()) return build(module, cache, into);
    return usage("nothing to do");
}
