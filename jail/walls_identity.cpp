// Who the instance is and how much it may take. Raw prctl and capset: one library less in a privileged program.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "jail/walls.hpp"

namespace hf::jail {
namespace {

using layout::JailSpec;

// Capabilities have numbers below 64 in every kernel so far; dropping beyond the last answers EINVAL.
constexpr int kCapabilitiesMax = 64;
// Threads of one uid, both generations of a swap included: the runtime has the most, about one per core and a few.
constexpr rlim_t kProcessesMax = 512;

Result<void> drop_bounding_set() {
    for (int capability = 0; capability < kCapabilitiesMax; ++capability) {
        if (::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) != 1) continue;
        if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
            return fail_errno(errno, "dropping capability " + std::to_string(capability));
    }
    return {};
}

Result<void> drop_capabilities() {
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
        return fail_errno(errno, "clearing ambient capabilities");
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    if (::syscall(SYS_capset, &header, none) != 0)
        return fail_errno(errno, "dropping capabilities");
    return {};
}

Result<void> set_limit(__rlimit_resource_t which, rlim_t wanted, const char* name) {
    rlimit limit{};
    if (::getrlimit(which, &limit) != 0)
        return fail_errno(errno, std::string("reading limit ") + name);
    // Only down: raising needs a capability that is gone by now.
    const rlim_t value = std::min(wanted, limit.rlim_max);
    limit = {value, value};
    if (::setrlimit(which, &limit) != 0)
        return fail_errno(errno, std::string("setting limit ") + name);
    return {};
}

}  // namespace

Result<void> take_identity(const JailSpec& spec, const SayMissing& missing) {
    if (spec.uid != 0) {
        if (::setgroups(0, nullptr) != 0) return fail_errno(errno, "leaving all groups");
        HF_TRY(drop_bounding_set());
        if (::setresgid(spec.uid, spec.uid, spec.uid) != 0)
            return fail_errno(errno, "taking gid " + std::to_string(spec.uid));
        if (::setresuid(spec.uid, spec.uid, spec.uid) != 0)
            return fail_errno(errno, "taking uid " + std::to_string(spec.uid));
    } else {
        missing("the instance runs under uid " + std::to_string(::getuid()) +
                ", which other instances share: only root can give each its own");
        if (spec.user_namespace) HF_TRY(drop_bounding_set());
    }
    HF_TRY(drop_capabilities());
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno(errno, "setting no_new_privs");
    // The plugin has our uid: it must not look into or trace the jail.
    if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return fail_errno(errno, "hiding the jail's memory");
    return {};
}

Result<void> set_limits(const JailSpec& spec) {
    HF_TRY(set_limit(RLIMIT_CORE, 0, "core"));
    HF_TRY(set_limit(RLIMIT_NOFILE, spec.open_files, "open files"));
    // Counted per uid: with a shared uid it would count the user's other processes.
    if (spec.uid != 0) HF_TRY(set_limit(RLIMIT_NPROC, kProcessesMax, "processes"));
    if (spec.address_space_bytes != 0)
        HF_TRY(set_limit(RLIMIT_AS, spec.address_space_bytes, "address space"));
    if (spec.cpu_seconds != 0) HF_TRY(set_limit(RLIMIT_CPU, spec.cpu_seconds, "cpu seconds"));
    if (spec.file_bytes != 0) HF_TRY(set_limit(RLIMIT_FSIZE, spec.file_bytes, "file size"));
    return {};
}

}  // namespace hf::jail
