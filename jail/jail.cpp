#include "jail/jail.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "abi/base/unique_fd.hpp"
#include "abi/layout/jail_spec.hpp"
#include "jail/child.hpp"
#include "jail/profiles.hpp"
#include "jail/report.hpp"
#include "jail/walls.hpp"
#include "jail/warden.hpp"

namespace hf::jail {
namespace {

using layout::JailReport;
using layout::JailReportKind;
using layout::JailSpec;
using layout::kReportFd;
using layout::kSpecFd;

constexpr int kExitStarted = 0;  // the plugin ran; how it ended is in the report
constexpr int kExitRefused = 2;  // nothing was started; the report says why
constexpr int kExitOrphan = 3;   // the supervisor is gone

Result<JailSpec> read_spec() {
    Bytes bytes(layout::kJailSpecBytesMax + 1);
    std::size_t size = 0;
    while (size < bytes.size()) {
        const ssize_t got =
            ::pread(kSpecFd, bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
        if (got < 0) return fail_errno(errno, "reading the spec");
        if (got == 0) break;
        size += static_cast<std::size_t>(got);
    }
    return layout::decode_jail_spec(BytesView(bytes).first(size));
}

// Handlers and mask come from the supervisor: both back to a known state. SIGCHLD is read from a descriptor.
Result<UniqueFd> settle_signals() {
    for (int number = 1; number < NSIG; ++number)
        ::signal(number, SIG_DFL);  // fails for KILL and STOP: fine
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigaddset(&child, SIGTERM);  // see die_with_supervisor
    if (::sigprocmask(SIG_SETMASK, &child, nullptr) != 0)
        return fail_errno(errno, "setting the signal mask");
    UniqueFd fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd.valid()) return fail_errno(errno, "making a signalfd");
    return fd;
}

// A signal of the terminal or to the supervisor's process group must not reach plugins: it decides who ends when.
Result<void> own_session() {
    if (::setsid() < 0) return fail_errno(errno, "making a session");
    return {};
}

// Armed after the last change of credentials, which would clear it. A jail that must find its plugin's children by
// itself is asked to end instead of being ended; the watch over the plugin then does the rest.
Result<void> die_with_supervisor(bool children_to_find, const SayMissing& missing) {
    if (children_to_find)
        missing(
            "no pid namespace: if the jail itself is killed, programs its plugin started live on "
            "until their CPU limit");
    if (::prctl(PR_SET_PDEATHSIG, children_to_find ? SIGTERM : SIGKILL, 0, 0, 0) != 0)
        return fail_errno(errno, "arming pdeathsig");
    // Did it die before that? getppid() is 0 in a pid namespace; its end of the socket tells in every case.
    pollfd report{kReportFd, 0, 0};
    if (::poll(&report, 1, 0) > 0) return fail(Code::PeerGone, "the supervisor is gone");
    return {};
}

struct Prepared {
    JailSpec spec;
    const Profile* walls = nullptr;   // never null
    const Profile* filter = nullptr;  // null: unfiltered
    Landlock landlock;
    UniqueFd signals;
    UniqueFd proc;
};

const Profile* find(const std::string& name, bool allow_unfiltered, bool& filtered) {
    filtered = true;
    if (const Profile* found = find_profile(name)) return found;
    constexpr std::string_view kPrefix = "unfiltered:";
    if (!allow_unfiltered || name.rfind(kPrefix, 0) != 0) return nullptr;
    filtered = false;
    return find_profile(std::string_view(name).substr(kPrefix.size()));
}

Result<Prepared> prepare(bool allow_unfiltered) {
    HF_ASSIGN(UniqueFd signals, settle_signals());
    HF_TRY(own_session());
    HF_ASSIGN(JailSpec spec, read_spec());
    ::close(kSpecFd);
    const SayMissing missing = [](const std::string& sentence) {
        JailReport report;
        report.kind = JailReportKind::Wall;
        report.text = sentence;
        send_report(kReportFd, report);
    };
    bool filtered = true;
    const Profile* profile = find(spec.profile, allow_unfiltered, filtered);
    if (profile == nullptr)
        return fail(Code::Invalid, "there is no jail profile '" + spec.profile + "'");
    if (spec.host_pids && profile->may_exec)
        return fail(
            Code::Refused,
            "profile " + spec.profile + " may start processes and so needs a pid namespace");
    UniqueFd proc;
    if (::getpid() != 1) {
        if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
            return fail_errno(errno, "becoming a subreaper");
        proc.reset(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
    }
    HF_TRY(build_root(spec, *profile, missing));
    HF_TRY(take_identity(spec, missing));
    HF_TRY(die_with_supervisor(::getpid() != 1 && profile->may_exec, missing));
    HF_ASSIGN(Landlock landlock, Landlock::prepare(spec, missing));
    return Prepared{std::move(spec),
                    profile,
                    filtered ? profile : nullptr,
                    std::move(landlock),
                    std::move(signals),
                    std::move(proc)};
}

Result<Ending> run_plugin(Prepared& prepared) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno(errno, "making a socket pair");
    UniqueFd ours(pair[0]);
    UniqueFd theirs(pair[1]);
    const pid_t jail = ::getpid();
    const pid_t plugin = ::fork();
    if (plugin < 0) return fail_errno(errno, "forking");
    if (plugin == 0)
        run_child({&prepared.spec, prepared.filter, &prepared.landlock, jail, theirs.get()});
    theirs.reset();
    // 1 to 3 are the plugin's: we must not keep its pipes open, nor its link.
    ::close(STDOUT_FILENO);
    ::close(STDERR_FILENO);
    if (prepared.spec.control) ::close(layout::kControlFd);

    const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, plugin, 0)));
    if (!pidfd.valid()) return fail_errno(errno, "pidfd of the plugin");  // our exit ends it
    JailReport born;
    born.kind = JailReportKind::Born;
    if (!send_report(kReportFd, born, pidfd.get()))
        return fail(Code::PeerGone, "the supervisor is gone");
    const bool exec_free = prepared.filter == nullptr || prepared.filter->may_exec;
    return Warden(plugin,
                  std::move(ours),
                  std::move(prepared.signals),
                  std::move(prepared.proc),
                  exec_free)
        .watch();
}

int refuse(const Error& error) {
    if (error.code == Code::PeerGone) return kExitOrphan;
    JailReport report;
    report.kind = JailReportKind::Failed;
    report.text = error.message;
    send_report(kReportFd, report);
    return kExitRefused;
}

}  // namespace

int run_jail(bool allow_unfiltered) {
    // Whoever starts us by hand has no spec to give.
    struct stat info {};
    if (::fcntl(kSpecFd, F_GET_SEALS) < 0 || ::fstat(kReportFd, &info) != 0 ||
        !S_ISSOCK(info.st_mode)) {
        constexpr std::string_view kUsage =
            "holdfast-jail is started by holdfastd, which hands it a spec at descriptor 4.\n";
        [[maybe_unused]] const ssize_t written =
            ::write(STDERR_FILENO, kUsage.data(), kUsage.size());
        return kExitRefused;
    }
    auto prepared = prepare(allow_unfiltered);
    if (!prepared) return refuse(prepared.error());
    auto ending = run_plugin(prepared.value());
    if (!ending) return refuse(ending.error());
    if (!ending->failure.empty()) return refuse(fail(Code::Io, ending->failure));
    JailReport report;
    report.kind = JailReportKind::Ended;
    report.wait_status = static_cast<std::uint32_t>(ending->wait_status);
    report.syscall = ending->syscall;
    report.syscall_number = ending->syscall_number;
    return send_report(kReportFd, report) ? kExitStarted : kExitOrphan;
}

}  // namespace hf::jail
