// Runs the C compiler on one translation, with limits of its own: the jail has limits too, but a module that is too
// much for the compiler is refused by name here, not killed there.
#pragma once

#include <string>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "plugins/runtime-wasm/build/translate.hpp"

namespace hf::wasm {

// Part of the cache key: every flag that changes code. -O1 was measured no slower to run than -O2 and half the time to
// compile; no strict aliasing, wrapping arithmetic and no float contraction because wasm says so; stack probes so that
// a deep recursion meets the guard.
inline constexpr const char* kCompileFlags =
    "-O1 -std=gnu11 -fPIC -shared -DNDEBUG -w -g0 -fno-strict-aliasing -fwrapv -ffp-contract=off "
    "-fstack-clash-protection -fvisibility=hidden -frandom-seed=hf -Wl,-z,now -Wl,-z,defs "
    "-Wl,-z,noexecstack "
    "-Wl,--build-id=none";
// The largest modules the policy lets through (2 MiB of code) need about a minute of one core.
inline constexpr unsigned kCompileCpuSeconds = 120;
inline constexpr unsigned kCompileWallSeconds = 300;
// sqlite3.wasm takes 0.7 GB; a compiler above this would push the node into memory pressure.
inline constexpr std::uint64_t kCompileMemoryBytes = std::uint64_t{3} << 30;

// "gcc (Debian 12.2.0-14+deb12u1) 12.2.0". Unavailable when there is no gcc.
Result<std::string> compiler_version();

// Unavailable: the tool is missing or failed. Refused: the module needs more than the limits.
Result<Bytes> compile(const Translation& translation, const std::string& scratch);

// A private directory under /tmp, removed with everything in it by the destructor.
class Scratch {
public:
    static Result<Scratch> create();
    Scratch(Scratch&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
    Scratch& operator=(Scratch&&) = delete;
    ~Scratch();
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    explicit Scratch(std::string path) : path_(std::move(path)) {}
    std::string path_;
};

}  // namespace hf::wasm
