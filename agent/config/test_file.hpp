// A configuration file for the time of one test.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "agent/config/config.hpp"

namespace hf::config::test {

// The three tables without which nothing starts.
inline constexpr std::string_view kPlugins =
    "[plugin.gateway]\nuse = \"gateway-http\"\n[plugin.storage]\nuse = \"storage-local\"\n"
    "[plugin.runtime]\nuse = \"runtime-wasm\"\n";

class Directory {
public:
    explicit Directory(const std::string& inner = {}) {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "hf-config-XXXXXX").string();
        root_ = ::mkdtemp(pattern.data());
        path_ = inner.empty() ? root_ : root_ / inner;
        std::filesystem::create_directories(path_);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() { std::filesystem::remove_all(root_); }

    std::filesystem::path write(std::string_view text,
                                const std::string& name = "agent.toml") const {
        std::ofstream(path_ / name, std::ios::binary) << text;
        return path_ / name;
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path root_;
    std::filesystem::path path_;
};

using Variables = std::map<std::string, std::string>;

[[nodiscard]] inline Options options(const Variables& variables = {}, bool check_files = false) {
    return {[variables](const char* name) -> std::optional<std::string> {
                const auto found = variables.find(name);
                return found == variables.end() ? std::nullopt : std::optional(found->second);
            },
            check_files};
}

// Checks `text`; the places of problems then begin with the bare file name.
[[nodiscard]] inline Checked check_text(std::string_view text, const Variables& variables = {}) {
    const Directory directory;
    Checked out = check(directory.write(text), options(variables));
    for (Problem& problem : out.problems)
        problem.file = problem.file.substr(problem.file.rfind('/') + 1);
    return out;
}

[[nodiscard]] inline std::string with_plugins(std::string_view text) {
    return std::string(text) + '\n' + std::string(kPlugins);
}

// All complaints, a line each; empty when the text is good.
[[nodiscard]] inline std::string complaints(std::string_view text,
                                            const Variables& variables = {}) {
    std::string out;
    const Checked checked = check_text(text, variables);
    for (const Problem& problem : checked.problems) out += problem.text() + '\n';
    if (checked.problems.empty() != checked.config.has_value())
        out += "problems and config disagree\n";
    return out;
}

}  // namespace hf::config::test
