#include "plugins/runtime-wasm/engine/guest_stack.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "plugins/runtime-wasm/engine/stack_switch.hpp"

namespace hf::wasm {

Result<std::unique_ptr<GuestStack>> GuestStack::create() {
    void* base = ::mmap(nullptr,
                        kGuardBytes + size(),
                        PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1,
                        0);
    if (base == MAP_FAILED) return fail_errno(errno, "reserving a guest stack");
    auto* bytes = static_cast<std::uint8_t*>(base);
    std::unique_ptr<GuestStack> stack(new GuestStack(bytes));
    if (::mprotect(bytes + kGuardBytes, size(), PROT_READ | PROT_WRITE) != 0)
        return fail_errno(errno, "opening a guest stack");
    return stack;
}

GuestStack::~GuestStack() {
    clear();
    ::munmap(base_, kGuardBytes + size());
}

void GuestStack::clear() const {
    stack_switch::forget(bottom(), size());
}

}  // namespace hf::wasm
