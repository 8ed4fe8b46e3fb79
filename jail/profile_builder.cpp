// builder: translates a wasm module and runs the C compiler, assembler and linker. It may start programs and write into
// its folder and /tmp; it has no network and a pid namespace of its own, which ends whatever it started.
#include <linux/sched.h>

#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr std::uint64_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                         CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

constexpr Rule kBuilder[] = {
    {"execve", kAlways, "cc1, as, collect2, ld"},
    {"fork", kAlways, "the compiler driver"},
    {"vfork", kAlways, "the compiler driver"},
    {"clone", arg_lacks(0, kNewNamespaces), "processes and threads, never a namespace"},
    {"wait4", kAlways, "the compiler driver waits for its tools"},
    {"waitid", kAlways, "the compiler driver waits for its tools"},
    {"kill", kAlways, "a driver ends its tools; the pid namespace shows no others"},
    {"setpgid", kAlways, "a shell groups its commands"},
    {"getpgrp", kAlways, "a shell groups its commands"},
    {"getpgid", kAlways, "a shell groups its commands"},
    {"chdir", kAlways, "the compiler works in its folder"},
    {"fchdir", kAlways, "as chdir"},
    {"pwrite64", kAlways, "the linker"},
    {"pwritev", kAlways, "the linker"},
    {"ftruncate", kAlways, "the linker sizes its output"},
    {"truncate", kAlways, "the linker sizes its output"},
    {"fsync", kAlways, "the result is complete before it is named"},
    {"fdatasync", kAlways, "as fsync"},
    {"creat", kAlways, "output files"},
    {"mkdir", kAlways, "temporary folders"},
    {"mkdirat", kAlways, "temporary folders"},
    {"rmdir", kAlways, "temporary folders"},
    {"rename", kAlways, "the result gets its name when it is whole"},
    {"renameat", kAlways, "as rename"},
    {"renameat2", kAlways, "as rename"},
    {"link", kAlways, "tools that replace a file"},
    {"linkat", kAlways, "tools that replace a file"},
    {"symlink", kAlways, "tools that replace a file"},
    {"symlinkat", kAlways, "tools that replace a file"},
    {"unlink", kAlways, "temporary files"},
    {"unlinkat", kAlways, "temporary files"},
    {"chmod", kAlways, "the linker marks its output executable"},
    {"fchmod", kAlways, "as chmod"},
    {"fchmodat", kAlways, "as chmod"},
    {"umask", kAlways, "the linker asks before it marks"},
    {"utimensat", kAlways, "tools that keep times"},
    {"getdents64", kAlways, "looking for headers"},
    {"statfs", kAlways, "room for temporary files"},
    {"fstatfs", kAlways, "room for temporary files"},
    {"pipe", kAlways, "-pipe"},
    {"getxattr", kAlways, "copying files"},
    {"copy_file_range", kAlways, "copying files"},
    {"sendfile", kAlways, "copying files"},
    {"fadvise64", kAlways, "copying files"},
    {"timer_create", kAlways, "deadlines of the image phase, which runs the guest's start"},
    {"timer_settime", kAlways, "deadlines of the image phase"},
    {"timer_delete", kAlways, "deadlines of the image phase"},
    {"setitimer", kAlways, "a time-out of the driver"},
    {"alarm", kAlways, "a time-out of the driver"},
    {"rt_sigsuspend", kAlways, "a shell waits"},
    {"setrlimit", kAlways, "the compiler asks for more stack; the hard limit holds"},
    {"prlimit64", arg_is_not(2, 0), "as setrlimit"},
    {"getgroups", kAlways, "a shell looks who it is"},
    {"getresuid", kAlways, "a shell looks who it is"},
    {"getresgid", kAlways, "a shell looks who it is"},
};

// One row a flag: a rule can test for all bits of a mask or none, not for any.
constexpr Rule kNamespaces[] = {
    {"clone",
     arg_has(0, CLONE_NEWUSER),
     "a fresh user namespace opens kernel paths meant for root"},
    {"clone", arg_has(0, CLONE_NEWNS), "would change what the jail shows"},
    {"clone", arg_has(0, CLONE_NEWPID), "would hide processes from the jail"},
    {"clone", arg_has(0, CLONE_NEWNET), "a network of its own is a large kernel surface"},
};

}  // namespace

const Rules kAllowBuilder{kBuilder};
const Rules kForbiddenToBuilder{kNamespaces};

}  // namespace hf::jail
