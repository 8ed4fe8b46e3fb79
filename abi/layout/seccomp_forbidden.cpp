// What no plugin, or hardly any, may call. Each of these ends the process and is named in its exit report.
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "abi/layout/seccomp_rule.hpp"

namespace hf::layout {
namespace {

constexpr Rule kAll[] = {
    {"ptrace", kAlways, "reads and steers other processes of the same uid"},
    {"process_vm_readv", kAlways, "reads other processes' memory"},
    {"process_vm_writev", kAlways, "writes other processes' memory"},
    {"process_madvise", kAlways, "acts on other processes' memory"},
    {"pidfd_getfd", kAlways, "takes descriptors out of other processes"},
    {"kcmp", kAlways, "leaks what other processes share"},
    {"bpf", kAlways, "loads programs into the kernel"},
    {"keyctl", kAlways, "key rings are shared beyond the jail"},
    {"add_key", kAlways, "key rings are shared beyond the jail"},
    {"request_key", kAlways, "starts a helper outside the jail"},
    {"mount", kAlways, "would change what the jail shows"},
    {"umount2", kAlways, "would uncover what the jail hides"},
    {"pivot_root", kAlways, "would leave the jail's root"},
    {"chroot", kAlways, "a classic way out of a root"},
    {"move_mount", kAlways, "new mount interface, as mount"},
    {"open_tree", kAlways, "new mount interface, as mount"},
    {"fsopen", kAlways, "new mount interface, as mount"},
    {"fsconfig", kAlways, "new mount interface, as mount"},
    {"fsmount", kAlways, "new mount interface, as mount"},
    {"fspick", kAlways, "new mount interface, as mount"},
    {"mount_setattr", kAlways, "would make read-only binds writable"},
    {"unshare", kAlways, "a fresh user namespace opens kernel paths meant for root"},
    {"setns", kAlways, "would join other namespaces"},
    {"kexec_load", kAlways, "replaces the kernel"},
    {"kexec_file_load", kAlways, "replaces the kernel"},
    {"init_module", kAlways, "loads kernel code"},
    {"finit_module", kAlways, "loads kernel code"},
    {"delete_module", kAlways, "unloads kernel code"},
    {"reboot", kAlways, "ends the machine"},
    {"swapon", kAlways, "changes the machine's memory"},
    {"swapoff", kAlways, "changes the machine's memory"},
    {"acct", kAlways, "writes where the kernel is told to"},
    {"settimeofday", kAlways, "leases hang on the clock"},
    {"clock_settime", kAlways, "leases hang on the clock"},
    {"iopl", kAlways, "raw hardware"},
    {"ioperm", kAlways, "raw hardware"},
    {"perf_event_open", kAlways, "large kernel surface, sees other processes"},
    {"userfaultfd", kAlways, "stops the kernel in the middle of a copy; an exploit's favourite"},
    {"io_uring_setup", kAlways, "calls that go past this filter"},
    {"io_uring_enter", kAlways, "calls that go past this filter"},
    {"io_uring_register", kAlways, "calls that go past this filter"},
    {"open_by_handle_at", kAlways, "opens files the jail does not show"},
    {"fanotify_init", kAlways, "watches files beyond the jail"},
    {"personality", kAlways, "turns off address randomisation and READ_IMPLIES_EXEC"},
    {"fallocate", kAlways, "holes in a shared segment make the reader's fault allocate memory"},
    {"madvise", arg_is(2, MADV_REMOVE), "holes in a shared segment, as fallocate"},
    {"tgkill", arg_is_foreign_pid(0), "signals to others; raise and abort name the own pid"},
};

constexpr Rule kExec[] = {
    {"execve", kAlways, "a plugin is one program; the jail lets its own start through"},
    {"execveat", kAlways, "as execve"},
};

constexpr Rule kFork[] = {
    {"fork", kAlways, "a plugin is one process: its death is then known exactly"},
    {"vfork", kAlways, "as fork"},
    {"clone", arg_lacks(0, CLONE_THREAD), "as fork; also every new namespace"},
};

constexpr Rule kSockets[] = {
    {"socket", kAlways, "no network, and no unix socket but the control socket it was given"},
};

// getaddrinfo asks AF_NETLINK first and lives with ENOSYS, so that family is merely not allowed.
constexpr Rule kRawSockets[] = {
    {"socket", arg_is(0, AF_PACKET), "raw frames of the host's network"},
    {"socket", arg_is(0, AF_ALG), "kernel crypto: a large surface nobody needs"},
    {"socket", arg_is(0, AF_VSOCK), "reaches the hypervisor"},
    {"socket", arg_is(0, AF_BLUETOOTH), "a large kernel surface nobody needs"},
    {"socket", arg_is(0, AF_CAN), "a kernel surface nobody needs"},
    {"socket", arg_is(0, AF_TIPC), "a kernel surface nobody needs"},
    {"socket", arg_is(0, 44), "AF_XDP: raw frames of the host's network"},
};

constexpr Rule kMemoryFiles[] = {
    {"memfd_create",
     kAlways,
     "memory outside the instance's own account, and a way to execute data"},
};

// Two flags in two spellings, with and without the kernel's own bit against execution (Linux 6.3); nothing else.
constexpr std::uint64_t kSealable = MFD_CLOEXEC | MFD_ALLOW_SEALING;
constexpr std::uint64_t kNoExec = 0x8;       // MFD_NOEXEC_SEAL, which older headers do not have
constexpr std::uint64_t kExecutable = 0x10;  // MFD_EXEC

constexpr Rule kOpenMemoryFiles[] = {
    {"memfd_create", arg_lacks(1, MFD_CLOEXEC), "a memory file that a program could be given"},
    {"memfd_create", arg_lacks(1, MFD_ALLOW_SEALING), "a memory file that can never be a body"},
    {"memfd_create", arg_has(1, MFD_HUGETLB), "huge pages run out, and their reader gets a signal"},
    {"memfd_create", arg_has(1, kExecutable), "a way to execute data"},
};

constexpr Rule kSealableMemoryFiles[] = {
    {"memfd_create",
     arg_masked(1, 0xFFFF'FFFF & ~kNoExec, kSealable),
     "large bodies, sealed before they are passed on"},
};

constexpr Rule kResize[] = {
    {"ftruncate", kAlways, "segments and files keep the size they were given"},
    {"truncate", kAlways, "as ftruncate"},
};

}  // namespace

const Rules kForbiddenToAll{kAll};
const Rules kForbiddenExec{kExec};
const Rules kForbiddenFork{kFork};
const Rules kForbiddenSockets{kSockets};
const Rules kForbiddenRawSockets{kRawSockets};
const Rules kForbiddenMemoryFiles{kMemoryFiles};
const Rules kForbiddenOpenMemoryFiles{kOpenMemoryFiles};
const Rules kAllowSealableMemoryFiles{kSealableMemoryFiles};
const Rules kForbiddenResize{kResize};

}  // namespace hf::layout
