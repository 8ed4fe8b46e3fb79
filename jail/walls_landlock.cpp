// Landlock: a second wall behind the mounts. Kernel constants newer than the build machine's headers are repeated here.
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/base/unique_fd.hpp"
#include "jail/walls.hpp"

namespace hf::jail {
namespace {

// ABI 6 of the attribute; older kernels are given the prefix they know.
struct RulesetAttribute {
    std::uint64_t handled_access_fs = 0;
    std::uint64_t handled_access_net = 0;
    std::uint64_t scoped = 0;
};
constexpr std::uint64_t kScopeAbstractUnix = 1U << 0U;
constexpr std::uint64_t kScopeSignal = 1U << 1U;
constexpr std::uint64_t kTruncate = 1ULL << 14U;  // ABI 3

constexpr std::uint64_t kReadExecute =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

std::uint64_t all_rights(long abi) {
    std::uint64_t rights = (1ULL << 13U) - 1;  // ABI 1: EXECUTE up to MAKE_SYM
    if (abi >= 2) rights |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3) rights |= kTruncate;
    return rights;
}

Result<void> grant(int ruleset, const char* path, std::uint64_t rights) {
    const UniqueFd fd(::open(path, O_PATH | O_CLOEXEC));
    if (!fd.valid()) return fail_errno(errno, std::string("Landlock: opening ") + path);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return fail_errno(errno, std::string("Landlock: ") + path);
    // Rights of folders are refused for a file.
    if (!S_ISDIR(info.st_mode))
        rights &= LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                  LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
    landlock_path_beneath_attr rule{};
    rule.allowed_access = rights;
    rule.parent_fd = fd.get();
    if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        return fail_errno(errno, std::string("Landlock: a rule for ") + path);
    return {};
}

}  // namespace

Landlock::Landlock(Landlock&& other) noexcept : ruleset_(std::exchange(other.ruleset_, -1)) {}
Landlock::~Landlock() {
    if (ruleset_ >= 0) ::close(ruleset_);
}

Result<Landlock> Landlock::prepare(const layout::JailSpec& spec, const SayMissing& missing) {
    Landlock made;
    const long abi =
        ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1) {
        missing(std::string("no Landlock: ") + std::strerror(errno));
        return made;
    }
    const std::uint64_t rights = all_rights(abi);
    RulesetAttribute attribute;
    attribute.handled_access_fs = rights;
    if (abi >= 6) attribute.scoped = kScopeAbstractUnix | kScopeSignal;
    const std::size_t size = abi >= 6 ? sizeof attribute : (abi >= 4 ? 16U : 8U);
    made.ruleset_ = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attribute, size, 0));
    if (made.ruleset_ < 0) return fail_errno(errno, "Landlock: making a ruleset");
    if (spec.namespaces) {
        HF_TRY(grant(made.ruleset_, "/", kReadExecute));
    } else {
        // No root of its own: Landlock is the only wall before the host's files.
        for (const char* path :
             {"/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/ld.so.cache"})
            if (::access(path, F_OK) == 0) HF_TRY(grant(made.ruleset_, path, kReadExecute));
        HF_TRY(grant(made.ruleset_, spec.binary.c_str(), kReadExecute));
        for (const layout::JailBind& bind : spec.binds)
            HF_TRY(grant(made.ruleset_, bind.target.c_str(), kReadExecute));
        for (const char* path : {"/dev/zero", "/dev/urandom"})
            HF_TRY(grant(made.ruleset_, path, LANDLOCK_ACCESS_FS_READ_FILE));
        if (spec.network)
            for (const char* path :
                 {"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf"})
                if (::access(path, F_OK) == 0)
                    HF_TRY(grant(made.ruleset_, path, LANDLOCK_ACCESS_FS_READ_FILE));
    }
    HF_TRY(grant(
        made.ruleset_, "/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE));
    for (const layout::JailBind& bind : spec.binds)
        if (bind.writable) HF_TRY(grant(made.ruleset_, bind.target.c_str(), rights));
    if (spec.scratch) HF_TRY(grant(made.ruleset_, "/tmp", rights));
    return made;
}

Result<void> Landlock::apply() const {
    if (ruleset_ < 0) return {};
    if (::syscall(SYS_landlock_restrict_self, ruleset_, 0) != 0)
        return fail_errno(errno, "Landlock: restricting the plugin");
    return {};
}

}  // namespace hf::jail
