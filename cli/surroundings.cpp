#include "cli/surroundings.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

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

std::filesystem::path data_directory(const Surroundings& around, const std::string& node) {
    if (!node.empty()) return node;
    if (around.data_variable) return *around.data_variable;
    // build/bin/holdfast: the tree is two levels up. Only a tree with the `dev` script counts, so that an installed
    // /usr/bin/holdfast never looks into /data.
    const auto tree = (around.executable_dir / ".." / "..").lexically_normal();
    std::error_code ignored;
    if (std::filesystem::exists(tree / "dev", ignored) && listens(tree / "data"))
        return tree / "data";
    return around.system_data;
}

std::filesystem::path config_file(const Surroundings& around, const std::string& file) {
    if (!file.empty()) return file;
    std::error_code ignored;
    const auto here = around.working_dir / "agent.toml";
    return std::filesystem::exists(here, ignored) ? here : around.system_config;
}

Result<int> run_beside(const Surroundings& around,
                       const std::string& program,
                       const std::vector<std::string>& arguments) {
    const std::string path = (around.executable_dir / program).string();
    std::vector<std::string> words{path};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);

    pid_t pid = 0;
    const int error = ::posix_spawn(&pid, path.c_str(), nullptr, nullptr, argv.data(), environ);
    if (error == ENOENT)
        return fail(Code::NotFound,
                    program + " is not beside this program (" + around.executable_dir.string() +
                        "): the installation is not whole");
    if (error != 0) return fail_errno(error, "cannot start " + path);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return fail_errno(errno, "cannot wait for " + path);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal = WTERMSIG(status);
    return fail(Code::Io, program + " was ended by signal " + std::to_string(signal));
}

}  // namespace hf::cli
