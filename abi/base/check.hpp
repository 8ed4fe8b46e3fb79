// HF_CHECK: a rule of our own is broken. Prints where and what, then aborts, in release builds too.
// Never for what a peer sent (that is a fault of the peer) nor for what the outside did (that is a Result).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace hf {

[[noreturn]] inline void check_failed(const char* file,
                                      int line,
                                      const char* rule,
                                      const char* why) noexcept {
    std::fprintf(stderr, "CHECK failed at %s:%d: %s (%s)\n", file, line, rule, why);
    std::fflush(stderr);
    std::abort();
}

}  // namespace hf

#define HF_CHECK(rule, why)                                              \
    do {                                                                 \
        if (!(rule)) ::hf::check_failed(__FILE__, __LINE__, #rule, why); \
    } while (false)
