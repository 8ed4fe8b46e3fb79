// holdfastd: the supervisor.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "agent/config/config.hpp"
#include "agent/daemon/daemon.hpp"
#include "agent/log/log.hpp"

namespace {

// 0 good, 2 refused; the words are for a person or, with --json, for a program.
int check(const std::string& file, bool show, bool json) {
    const auto checked = hf::config::check(file);
    if (!checked.config) {
        for (const auto& problem : checked.problems)
            std::fprintf(stderr, "%s\n", problem.text().c_str());
        return 2;
    }
    if (show) {
        std::printf("%s\n",
                    json ? hf::config::show_json(*checked.config).c_str()
                         : hf::config::show_text(*checked.config).c_str());
    } else {
        std::printf(json ? "{\"ok\": true, \"file\": \"%s\"}\n" : "%s: good\n", file.c_str());
    }
    return 0;
}

// Links, listeners and connections of the whole node; the hard limit is the operator's.
void raise_file_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    constexpr rlim_t kWanted = 65536;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? kWanted : std::min(limit.rlim_max, kWanted);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// What the daemon itself opens and five plugins with one instance each; with fewer it could not even say what is missing.
constexpr rlim_t kFilesLeast = 64;

bool enough_files() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kFilesLeast) return true;
    std::fprintf(
        stderr,
        "holdfastd: %llu descriptors may be open here (RLIMIT_NOFILE), a node needs at least "
        "%llu: raise the limit, with `ulimit -n` or LimitNOFILE=\n",
        static_cast<unsigned long long>(limit.rlim_cur),
        static_cast<unsigned long long>(kFilesLeast));
    return false;
}

// Whoever starts us may leave the standard streams closed, signals ignored or blocked, and any umask; what would come of
// that is sockets and logs at descriptor 2, children that cannot be waited for, and files nobody may open.
bool settle_inheritance() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) continue;
        // The lowest free number is this one.
        if (::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) return false;
    }
    for (int number = 1; number < NSIG; ++number)
        ::signal(number, SIG_DFL);  // fails for KILL and STOP: fine
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a write beyond RLIMIT_FSIZE is an error with a name, not our end
    ::umask(S_IWGRP | S_IWOTH);
    return true;
}

// The same as that of `holdfast config check`.
std::string default_file() {
    const char* const here = "agent.toml";
    return ::access(here, F_OK) == 0 ? here : "/etc/holdfast/agent.toml";
}

// A command line that makes no sense ends with 2, whatever the library makes of it; --help and --version with 0.
constexpr int kUsage = 2;

}  // namespace

int main(int argc, char** argv) {
    if (!settle_inheritance()) return 1;
    CLI::App app{
        "holdfastd: a microkernel node agent\nexample: holdfastd --config examples/agent.toml"};
    std::string file = default_file();
    std::string check_file;
    std::string show_file;
    bool json = false;
    bool keep_limit = false;
    app.set_version_flag("--version", std::string("holdfastd ") + HOLDFAST_VERSION);
    app.add_option("--config",
                   file,
                   "the configuration to serve; without it ./agent.toml, else "
                   "/etc/holdfast/agent.toml")
        ->type_name("FILE");
    app.add_option(
        "--check-config", check_file, "judge a configuration and exit: 0 good, 2 refused");
    app.add_option(
        "--show-config", show_file, "print every effective value with its origin and exit");
    app.add_flag("--json", json, "machine-readable output of the two above");
    app.add_flag("--keep-file-limit", keep_limit, "do not raise RLIMIT_NOFILE to its hard limit");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kUsage;
    }

    if (!check_file.empty()) return check(check_file, false, json);
    if (!show_file.empty()) return check(show_file, true, json);

    if (!keep_limit) raise_file_limit();
    if (!enough_files()) return 1;
    auto config = hf::config::load(file);
    if (!config) {
        std::fprintf(stderr, "%s\n", config.error().message.c_str());
        if (app.count("--config") == 0)
            std::fprintf(stderr, "name another file with --config FILE\n");
        return 2;
    }
    auto daemon = hf::daemon::Daemon::create(std::move(config).value());
    if (!daemon) {
        hf::log::error("daemon", "refused to start: " + daemon.error().message);
        return 1;
    }
    const int code = (*daemon)->run();
    hf::log::info("daemon", "stopped", {{"exit_code", code}});
    return code;
}
