#include "jail/child.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "abi/layout/seccomp_filter.hpp"
#include "jail/report.hpp"

namespace hf::jail {
namespace {

// The whole environment. PATH and LANG are for the builder's tools; HOME stops libraries from asking who we are.
const char* const kEnvironment[] = {
    "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp", "TMPDIR=/tmp", nullptr};

constexpr int kExecFailed = 127;  // as a shell says it; the sentence goes over the start socket

[[noreturn]] void give_up(int socket, const std::string& sentence) {
    send_packet(socket, as_bytes(sentence), -1);
    ::_exit(kExecFailed);
}

Result<void> die_with_jail(pid_t jail) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
        return fail_errno(errno, "arming pdeathsig");
    // It may have died between fork and the line above; then nobody would send the signal.
    if (::getppid() != jail) return fail(Code::PeerGone, "the jail died before its plugin started");
    return {};
}

// Nothing but 0 to 3 goes through exec; the start socket and the listener are still needed until then.
Result<void> close_rest_on_exec(bool keep_control) {
    const unsigned first = keep_control ? layout::kControlFd + 1U : layout::kControlFd;
    if (::syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
        return fail_errno(errno, "closing descriptors at exec (needs Linux 5.11)");
    return {};
}

Result<int> lay_filter(const Profile& profile) {
    layout::FilterPlan plan;
    plan.allow = profile.allow;
    plan.forbid = profile.forbid;
    plan.forbidden = layout::FilterPlan::Forbidden::Notify;
    return layout::load_filter(plan);
}

}  // namespace

void run_child(const ChildPlan& plan) {
    const layout::JailSpec& spec = *plan.spec;
    const std::string binary = inner_binary(spec);
    std::vector<char*> argv;
    // SAFETY: exec takes char* for history's sake and writes to none of them.
    argv.push_back(const_cast<char*>(binary.c_str()));
    for (const std::string& arg : spec.args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);

    Result<void> ready = die_with_jail(plan.jail);
    if (ready) ready = close_rest_on_exec(spec.control);
    if (ready) ready = set_limits(spec);
    if (ready) ready = plan.landlock->apply();
    if (!ready) give_up(plan.start_socket, ready.error().message);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);

    if (plan.profile != nullptr) {
        const auto listener = lay_filter(*plan.profile);
        if (!listener) give_up(plan.start_socket, listener.error().message);
        // From here on the filter holds for us as well.
        if (!send_packet(plan.start_socket, as_bytes("filter"), listener.value()))
            ::_exit(kExecFailed);
        ::close(listener.value());
    }
    ::execve(binary.c_str(), argv.data(), const_cast<char* const*>(kEnvironment));
    give_up(plan.start_socket, fail_errno(errno, "running " + spec.binary).message);
}

}  // namespace hf::jail
