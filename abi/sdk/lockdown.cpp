// Lays the second filter and names what it stops. SIGSYS belongs to this file: the filter itself refuses another
// handler for it. A forbidden call never runs, whatever becomes of the handler: the kernel has turned it into the
// signal already, and a blocked or reset SIGSYS ends the process at once.
#include "abi/sdk/lockdown.hpp"

#include <linux/audit.h>
#include <seccomp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "abi/layout/seccomp_filter.hpp"
#include "abi/sdk/lockdown_profiles.hpp"

namespace hf::sdk {
namespace {

// 128 + SIGSYS, as a shell would say it: told apart from a plugin's own exit codes by the report and the line.
constexpr int kExitForbidden = 159;
// The largest profile forbids about 80 calls; a row that does not fit would be shown by its number only.
constexpr std::size_t kNamesMax = 192;

struct Name {
    int number = -1;
    const char* text = nullptr;  // a literal of the rule tables
};

// Filled before the filter is laid, only read afterwards: the handler may allocate nothing.
std::array<Name, kNamesMax> names;
std::size_t names_count = 0;
std::atomic<volatile unsigned*> report_word{nullptr};
static_assert(std::atomic<volatile unsigned*>::is_always_lock_free);

void remember_names(const LockdownProfile& profile) {
    names_count = 0;
    for (const layout::Rules rules : profile.forbid)
        for (const layout::Rule& rule : rules) {
            if (names_count == names.size()) return;
            names[names_count++] = {seccomp_syscall_resolve_name(rule.call), rule.call};
        }
}

// Appends to a line of fixed size; what does not fit is left out.
struct Line {
    char text[96] = {};
    std::size_t size = 0;
    void add(const char* piece) {
        while (*piece != '\0' && size < sizeof text) text[size++] = *piece++;
    }
    void add(unsigned value) {
        char digits[12] = {};
        std::size_t at = sizeof digits - 1;
        do {
            digits[--at] = static_cast<char>('0' + value % 10);
            value /= 10;
        } while (value != 0 && at > 0);
        add(digits + at);
    }
};

// Async-signal-safe: writes one line and the number, then ends all threads.
void on_forbidden(int, siginfo_t* info, void*) {
    const int number = info->si_syscall;
    if (volatile unsigned* word = report_word.load(); word != nullptr)
        *word = static_cast<unsigned>(number) + 1;
    Line line;
    line.add("seccomp: ");
    const char* found = nullptr;
    if (info->si_arch == AUDIT_ARCH_X86_64 || info->si_arch == AUDIT_ARCH_AARCH64)
        for (std::size_t i = 0; i < names_count; ++i)
            if (names[i].number == number) found = names[i].text;
    if (found != nullptr) {
        line.add(found);
    } else {
        line.add("call ");
        line.add(static_cast<unsigned>(number));
    }
    line.add("\n");
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.text, line.size);
    ::_exit(kExitForbidden);
}

Result<void> take_sigsys() {
    struct sigaction action {};
    action.sa_sigaction = on_forbidden;
    // ONSTACK: guests run on small stacks of their own.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigfillset(&action.sa_mask);
    if (::sigaction(SIGSYS, &action, nullptr) != 0) return fail_errno(errno, "taking SIGSYS");
    sigset_t ours;
    ::sigemptyset(&ours);
    ::sigaddset(&ours, SIGSYS);
    if (const int rc = ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr); rc != 0)
        return fail_errno(rc, "unblocking SIGSYS");
    return {};
}

}  // namespace

Result<void> lock_down(abi::Kind kind, const char* profile, volatile unsigned* report) {
    const LockdownProfile* found = find_lockdown(kind, profile == nullptr ? "" : profile);
    if (found == nullptr)
        return fail(Code::Invalid,
                    std::string("no second filter for kind ") + abi::EnumNameKind(kind));
    remember_names(*found);
    report_word.store(report);
    HF_TRY(take_sigsys());
    layout::FilterPlan plan;
    plan.allow = found->allow;
    plan.forbid = found->forbid;
    plan.forbidden = layout::FilterPlan::Forbidden::Trap;
    plan.all_threads = true;  // configure() may have started some
    const auto loaded = layout::load_filter(plan);
    if (!loaded) return loaded.error();
    return {};
}

}  // namespace hf::sdk
