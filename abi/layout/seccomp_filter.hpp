// Turns rule tables into a loaded seccomp filter. The one place of this room that names libseccomp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/layout/seccomp_rule.hpp"

namespace hf::layout {

struct FilterPlan {
    // What a forbidden call leads to. Notify: the holder of the listener decides. Trap: SIGSYS in the thread.
    enum class Forbidden { Notify, Trap, KillProcess };
    std::vector<Rules> allow;
    std::vector<Rules> forbid;
    Forbidden forbidden = Forbidden::Notify;
    bool all_threads = false;  // lay it on the threads that already run, too (not with Notify)
};

// Lays the filter on the calling thread (or all). Returns the listener's descriptor (close-on-exec, the caller's) for
// Notify, -1 otherwise. A rule that names an unknown call is an error of ours: Invalid.
[[nodiscard]] Result<int> load_filter(const FilterPlan& plan);

// "ptrace", "32-bit ptrace", "x32 ptrace", "call 9999". `arch` is an AUDIT_ARCH_ value as the kernel gives it.
[[nodiscard]] std::string syscall_name(std::uint32_t arch, std::int32_t number);
// True when this name is a system call of this machine.
[[nodiscard]] bool syscall_known(const char* name);

}  // namespace hf::layout
