// Tells the address sanitizer that the thread is about to run on another stack; nothing at all in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace hf::wasm::stack_switch {

#if defined(__SANITIZE_ADDRESS__)
// Before the jump. `leave`: where the sanitizer keeps what belongs to the stack left; null when it is left for good.
inline void begin(void** leave, const void* bottom, std::size_t size) {
    __sanitizer_start_switch_fiber(leave, bottom, size);
}
// First act on the stack jumped to; `own` is what begin() kept of it, and the stack left is answered.
inline void end(void* own, const void** left_bottom, std::size_t* left_size) {
    __sanitizer_finish_switch_fiber(own, left_bottom, left_size);
}
inline void forget(const void* bottom, std::size_t size) {
    __asan_unpoison_memory_region(bottom, size);
}
#else
inline void begin(void**, const void*, std::size_t) {}
inline void end(void*, const void**, std::size_t*) {}
inline void forget(const void*, std::size_t) {}
#endif

}  // namespace hf::wasm::stack_switch
