#include "cli/surroundings.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "abi/base/clock.hpp"
#include "abi/base/unique_fd.hpp"
#include "cli/wire.hpp"

namespace hf::cli {

Surroundings Surroundings::of_process() {
    Surroundings out;
    std::error_code ignored;
    out.executable_dir = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    out.working_dir = std::filesystem::current_path(ignored);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): read once at the start, one thread.
    if (const char* data = std::getenv("HOLDFAST_DATA"); data != nullptr && *data != '\0')
        out.data_variable = data;
    return out;
}

namespace {

// build/bin/holdfast: the tree is two levels up. Only a tree with the `dev` script counts, so that an installed
// /usr/bin/holdfast never looks into /data.
std::optional<std::filesystem::path> data_of_tree(const Surroundings& around) {
    const auto tree = (around.executable_dir / ".." / "..").lexically_normal();
    std::error_code ignored;
    if (!std::filesystem::exists(tree / "dev", ignored)) return std::nullopt;
    return tree / "data";
}

}  // namespace

std::string places_tried(const Surroundings& around) {
    if (around.data_variable)
        return *around.data_variable +
               " (HOLDFAST_DATA) and nowhere else; --node DIR names another";
    std::string out;
    if (const auto tree = data_of_tree(around)) out = tree->string() + " (./dev run) and ";
    return out + around.system_data.string() +
           "; HOLDFAST_DATA is not set and names the data directory, as does --node DIR";
}

std::filesystem::path data_directory(const Surroundings& around, const std::string& node) {
    if (!node.empty()) return node;
    if (around.data_variable) return *around.data_variable;
    if (const auto tree = data_of_tree(around); tree && listens(*tree)) return *tree;
    return around.system_data;
}

std::filesystem::path config_file(const Surroundings& around, const std::string& file) {
    if (!file.empty()) return file;
    std::error_code ignored;
    const auto here = around.working_dir / "agent.toml";
    return std::filesystem::exists(here, ignored) ? here : around.system_config;
}

namespace {

Result<pid_t> start_beside(const Surroundings& around,
                           const std::string& program,
                           const std::vector<std::string>& arguments,
                           const posix_spawn_file_actions_t* actions) {
    const std::string path = (around.executable_dir / program).string();
    std::vector<std::string> words{path};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    const int error = ::posix_spawn(&pid, path.c_str(), actions, nullptr, argv.data(), environ);
    if (error == ENOENT)
        return fail(Code::NotFound,
                    program + " is not beside this program (" + around.executable_dir.string() +
                        "): the installation is not whole");
    if (error != 0) return fail_errno(error, "cannot start " + path);
    return pid;
}

Result<int> wait_for(pid_t pid, const std::string& program) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return fail_errno(errno, "cannot wait for " + program);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    return fail(Code::Io, program + " was ended by signal " + std::to_string(WTERMSIG(status)));
}

struct Pipe {
    UniqueFd read;
    UniqueFd write;
    std::string* text = nullptr;

    Result<void> open(std::string& into) {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
        read.reset(ends[0]);
        write.reset(ends[1]);
        text = &into;
        return {};
    }
    // Takes what is there; what is beyond the bound is read and dropped, so that the writer does not block.
    void take() {
        std::array<char, 16'384> chunk{};
        const ssize_t count = ::read(read.get(), chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR) return;
        if (count <= 0) return read.reset();
        const auto room = kSaidBytesMax - text->size();
        text->append(chunk.data(), std::min(static_cast<std::size_t>(count), room));
    }
};

// False when the time was over before both ends closed.
bool take_all(Pipe& out, Pipe& err, std::chrono::milliseconds timeout) {
    const std::int64_t deadline_ns = monotonic_ns() + timeout.count() * 1'000'000;
    while (out.read.valid() || err.read.valid()) {
        const std::int64_t left_ms = (deadline_ns - monotonic_ns()) / 1'000'000;
        if (left_ms <= 0) return false;
        // A closed descriptor is -1, which poll passes over.
        std::array<pollfd, 2> both{pollfd{out.read.get(), POLLIN, 0},
                                   pollfd{err.read.get(), POLLIN, 0}};
        if (::poll(both.data(), both.size(), static_cast<int>(left_ms)) <= 0) continue;
        if (both[0].revents != 0) out.take();
        if (both[1].revents != 0) err.take();
    }
    return true;
}

}  // namespace

Result<Said> hear_beside(const Surroundings& around,
                         const std::string& program,
                         const std::vector<std::string>& arguments,
                         std::chrono::milliseconds timeout) {
    Said said;
    Pipe out;
    Pipe err;
    HF_TRY(out.open(said.out));
    HF_TRY(err.open(said.err));
    posix_spawn_file_actions_t actions{};
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
    const auto started = start_beside(around, program, arguments, &actions);
    ::posix_spawn_file_actions_destroy(&actions);
    if (!started) return started.error();
    out.write.reset();
    err.write.reset();
    const bool in_time = take_all(out, err, timeout);
    if (!in_time) ::kill(*started, SIGKILL);
    const auto code = wait_for(*started, program);
    if (!in_time) return fail(Code::Timeout, program + " did not end in time and was ended");
    if (!code) return code.error();
    said.code = *code;
    return said;
}

}  // namespace hf::cli
