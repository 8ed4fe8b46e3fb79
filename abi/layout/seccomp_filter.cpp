#include "abi/layout/seccomp_filter.hpp"

#include <linux/audit.h>
#include <seccomp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

namespace hf::layout {
namespace {

struct Release {
    void operator()(void* ctx) const { seccomp_release(ctx); }
};
using Context = std::unique_ptr<void, Release>;

// x32 calls carry this bit in their number and the 64-bit architecture in the record.
constexpr std::int32_t kX32Bit = 0x40000000;

std::uint32_t forbidden_action(FilterPlan::Forbidden forbidden) {
    switch (forbidden) {
        case FilterPlan::Forbidden::Notify:
            return SCMP_ACT_NOTIFY;
        case FilterPlan::Forbidden::Trap:
            return SCMP_ACT_TRAP;
        case FilterPlan::Forbidden::KillProcess:
            break;
    }
    return SCMP_ACT_KILL_PROCESS;
}

Result<void> add(scmp_filter_ctx ctx, std::uint32_t action, const Rule& rule) {
    const int number = seccomp_syscall_resolve_name(rule.call);
    if (number == __NR_SCMP_ERROR)
        return fail(Code::Invalid,
                    std::string("seccomp: no system call is named '") + rule.call + "'");
    const Condition& when = rule.when;
    const auto pid = static_cast<std::uint64_t>(::getpid());
    scmp_arg_cmp compare{when.arg, SCMP_CMP_EQ, when.value, 0};
    switch (when.test) {
        case Condition::Test::Always:
        case Condition::Test::Equal:
            break;
        case Condition::Test::NotEqual:
            compare.op = SCMP_CMP_NE;
            break;
        case Condition::Test::MaskedEqual:
            compare = {when.arg, SCMP_CMP_MASKED_EQ, when.mask, when.value};
            break;
        case Condition::Test::OwnPid:
            compare.datum_a = pid;
            break;
        case Condition::Test::NotOwnPid:
            compare.op = SCMP_CMP_NE;
            compare.datum_a = pid;
            break;
    }
    const unsigned count = when.test == Condition::Test::Always ? 0 : 1;
    const int rc = seccomp_rule_add_array(ctx, action, number, count, &compare);
    if (rc != 0) return fail_errno(-rc, std::string("seccomp rule for ") + rule.call);
    return {};
}

Result<void> set(scmp_filter_ctx ctx, scmp_filter_attr attribute, std::uint32_t value) {
    const int rc = seccomp_attr_set(ctx, attribute, value);
    if (rc != 0) return fail_errno(-rc, "seccomp attribute " + std::to_string(attribute));
    return {};
}

}  // namespace

Result<int> load_filter(const FilterPlan& plan) {
    const Context ctx(seccomp_init(SCMP_ACT_ERRNO(ENOSYS)));
    if (!ctx) return fail(Code::Unavailable, "seccomp: libseccomp cannot make a filter here");
    const std::uint32_t forbidden = forbidden_action(plan.forbidden);
    // A 32-bit entry or an x32 number means another table of calls: forbidden as a whole.
    HF_TRY(set(ctx.get(), SCMP_FLTATR_ACT_BADARCH, forbidden));
    HF_TRY(set(ctx.get(), SCMP_FLTATR_CTL_NNP, 1));
    HF_TRY(set(ctx.get(), SCMP_FLTATR_CTL_TSYNC, plan.all_threads ? 1 : 0));
    // A binary tree: about 30 ns a call instead of a walk through 200 comparisons.
    HF_TRY(set(ctx.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2));
    for (const Rules rules : plan.allow)
        for (const Rule& rule : rules) HF_TRY(add(ctx.get(), SCMP_ACT_ALLOW, rule));
    for (const Rules rules : plan.forbid)
        for (const Rule& rule : rules) HF_TRY(add(ctx.get(), forbidden, rule));
    const int rc = seccomp_load(ctx.get());
    if (rc != 0) return fail_errno(-rc, "laying the seccomp filter");
    if (plan.forbidden != FilterPlan::Forbidden::Notify) return -1;
    const int listener = seccomp_notify_fd(ctx.get());
    if (listener < 0) return fail_errno(-listener, "the seccomp filter's listener");
    return listener;  // made close-on-exec by the kernel; libseccomp leaves it open
}

std::string syscall_name(std::uint32_t arch, std::int32_t number) {
    std::string prefix;
    std::uint32_t table = arch;
    if (arch == AUDIT_ARCH_I386) {
        prefix = "32-bit ";
        table = SCMP_ARCH_X86;
    } else if (arch == AUDIT_ARCH_X86_64 && (number & kX32Bit) != 0) {
        prefix = "x32 ";
        table = SCMP_ARCH_X32;
    }
    // libseccomp allocates the name with malloc and leaves it to us.
    const std::unique_ptr<char, decltype(&std::free)> name(
        seccomp_syscall_resolve_num_arch(table, number), &std::free);
    if (name) return prefix + name.get();
    return prefix + "call " + std::to_string(number);
}

bool syscall_known(const char* name) {
    return seccomp_syscall_resolve_name(name) != __NR_SCMP_ERROR;
}

}  // namespace hf::layout
