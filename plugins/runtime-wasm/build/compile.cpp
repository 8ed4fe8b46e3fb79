#include "plugins/runtime-wasm/build/compile.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "abi/base/clock.hpp"
#include "abi/base/unique_fd.hpp"
#include "plugins/runtime-wasm/module/meta.hpp"

namespace hf::wasm {

namespace {

// Room for the compiler's complaints; only the first line is passed on.
constexpr std::size_t kOutputBytesMax = 64 * 1024;

struct Finished {
    int status = 0;
    bool timed_out = false;
    std::string output;
};

[[noreturn]] void run_child(const std::vector<std::string>& args,
                            const std::string& directory,
                            int out,
                            bool limited) {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::setpgid(0, 0);
    if (limited) {
        const rlimit cpu{kCompileCpuSeconds, kCompileCpuSeconds + 5};
        const rlimit memory{kCompileMemoryBytes, kCompileMemoryBytes};
        ::setrlimit(RLIMIT_CPU, &cpu);
        ::setrlimit(RLIMIT_AS, &memory);
    }
    if (::chdir(directory.c_str()) != 0) ::_exit(126);
    ::setenv("TMPDIR", directory.c_str(), 1);
    ::setenv("LC_ALL", "C", 1);
    if (::getenv("PATH") == nullptr) ::setenv("PATH", "/usr/bin:/bin", 1);
    std::vector<char*> argv;
    for (const std::string& arg : args)
        argv.push_back(const_cast<char*>(
            arg.c_str()));  // NOLINT(cppcoreguidelines-pro-type-const-cast): exec's signature
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
}

// Runs to the end or kills the whole group (gcc's own children too) at the deadline.
Result<Finished> run(const std::vector<std::string>& args,
                     const std::string& directory,
                     unsigned wall_seconds,
                     bool limited) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
        return fail_errno(errno, "making a pipe for " + args[0]);
    const UniqueFd in(ends[0]);
    UniqueFd out(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) return fail_errno(errno, "starting " + args[0]);
    if (child == 0) run_child(args, directory, out.get(), limited);
    out.reset();

    Finished finished;
    const std::int64_t end = monotonic_ns() + std::int64_t{wall_seconds} * 1'000'000'000;
    std::array<char, 4096> buffer{};
    while (true) {
        pollfd wait{in.get(), POLLIN, 0};
        const std::int64_t left = (end - monotonic_ns()) / 1'000'000;
        const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(left)) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) {
            finished.timed_out = true;
            ::kill(-child, SIGKILL);
            break;
        }
        const ssize_t got = ::read(in.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        if (finished.output.size() < kOutputBytesMax)
            finished.output.append(buffer.data(), static_cast<std::size_t>(got));
    }
    while (::waitpid(child, &finished.status, 0) < 0 && errno == EINTR) {
    }
    return finished;
}

std::string first_line(const std::string& text) {
    return text.substr(0, std::min<std::size_t>(text.find('\n'), 200));
}

Result<void> write_text(const std::string& path, const std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "we");
    if (file == nullptr) return fail_errno(errno, "writing " + path);
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !whole) return fail_errno(errno, "writing " + path);
    return {};
}

}  // namespace

Result<std::string> compiler_version() {
    HF_ASSIGN(const Finished finished, run({"gcc", "--version"}, "/", 10, false));
    if (finished.timed_out || !WIFEXITED(finished.status) || WEXITSTATUS(finished.status) != 0)
        return fail(Code::Unavailable,
                    "gcc is not there or does not run: install gcc-12 and libc6-dev on the node "
                    "that builds modules");
    return first_line(finished.output);
}

Result<Bytes> compile(const Translation& translation, const std::string& scratch) {
    HF_TRY(write_text(scratch + "/m.c", translation.c));
    HF_TRY(write_text(scratch + "/m.h", translation.header));
    std::vector<std::string> args = {"gcc"};
    std::istringstream flags(kCompileFlags);
    for (std::string flag; flags >> flag;) args.push_back(flag);
    for (const char* last : {"m.c", "-o", "m.so", "-lm"}) args.emplace_back(last);
    HF_ASSIGN(const Finished finished, run(args, scratch, kCompileWallSeconds, true));

    const auto refused = [](const std::string& what) {
        return fail(Code::Refused,
                    "the C compiler needed more than " + what +
                        " for the module: make its functions smaller");
    };
    if (finished.timed_out) return refused(std::to_string(kCompileWallSeconds) + " s");
    // gcc reports a killed cc1 itself; by its words a limit is told from a broken tool.
    if (finished.output.find("CPU time limit exceeded") != std::string::npos)
        return refused(std::to_string(kCompileCpuSeconds) + " s of CPU time");
    if (finished.output.find("out of memory") != std::string::npos ||
        finished.output.find("cannot allocate memory") != std::string::npos)
        return refused(std::to_string(kCompileMemoryBytes >> 30) + " GiB of memory");
    if (!WIFEXITED(finished.status) || WEXITSTATUS(finished.status) != 0)
        return fail(Code::Unavailable, "gcc failed: " + first_line(finished.output));
    return read_file(scratch + "/m.so", kSoBytesMax);
}

Result<Scratch> Scratch::create() {
    std::string path = "/tmp/holdfast-wasm-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr)
        return fail_errno(errno, "making a scratch directory in /tmp");
    return Scratch(std::move(path));
}

Scratch::~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace hf::wasm
