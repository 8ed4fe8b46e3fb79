#include "agent/config/config.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "abi/base/unique_fd.hpp"
#include "agent/config/judge.hpp"
#include "agent/config/text_rules.hpp"
#include "agent/config/toml_reader.hpp"

namespace hf::config {

namespace {

// What the parser says of a mistake quotes the file.
constexpr std::size_t kParserBytes = 300;

struct FileText {
    std::string text;
    std::string wrong;     // not empty: why there is no text
    bool readable = true;  // false: the file itself could not be opened or read
};

[[nodiscard]] FileText unreadable(std::string why) {
    return {{}, std::move(why), false};
}

// Never waits: a FIFO or device in place of the file is refused, and a file that grows is cut at the bound.
[[nodiscard]] FileText read_file(const std::filesystem::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd.valid()) {
        if (errno == ENOENT) return unreadable("the file does not exist");
        return unreadable("the file cannot be read: " + std::generic_category().message(errno));
    }
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0) return unreadable("the file cannot be looked at");
    if (S_ISDIR(facts.st_mode)) return unreadable("is a directory, not a file");
    if (!S_ISREG(facts.st_mode)) return unreadable("is not a regular file");
    FileText out;
    out.text.resize(kFileBytesMax + 1);
    std::size_t filled = 0;
    while (filled < out.text.size()) {
        const ssize_t got = ::read(fd.get(), out.text.data() + filled, out.text.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return unreadable("the file cannot be read: " + std::generic_category().message(errno));
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    if (filled > kFileBytesMax)
        return {{}, "the file is larger than " + format_size(kFileBytesMax), true};
    out.text.resize(filled);
    return out;
}

[[nodiscard]] std::optional<std::string> process_environment(const char* name) {
    const char* const value =
        std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets variables here
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

[[nodiscard]] std::optional<Config> judge_file(const std::string& text,
                                               const std::filesystem::path& absolute,
                                               const Options& options,
                                               Complaints& complaints) {
    if (auto failure = judge_text(text)) {
        complaints.add(failure->place, std::move(failure->message));
        return std::nullopt;
    }
    auto parsed = read_toml(text);
    if (auto* failure = std::get_if<ParseFailure>(&parsed)) {
        complaints.add(failure->place,
                       "not valid TOML: " + printable(failure->message, kParserBytes));
        return std::nullopt;
    }
    return Judge(std::get<Item>(parsed), absolute.parent_path(), options, complaints).judge();
}

}  // namespace

std::string_view slot_name(Slot slot) {
    switch (slot) {
        case Slot::Gateway:
            return "gateway";
        case Slot::Storage:
            return "storage";
        case Slot::Runtime:
            return "runtime";
        case Slot::Placement:
            return "placement";
        case Slot::Drain:
            return "drain";
    }
    return "?";
}

std::string_view PluginConfig::setting(std::string_view key) const {
    for (const auto& [name, value] : settings)
        if (name == key) return value;
    return {};
}

const PluginConfig* Config::plugin(Slot slot) const {
    const auto found = plugins.find(slot);
    return found == plugins.end() ? nullptr : &found->second;
}

std::string Problem::text() const {
    std::string out = file;
    if (line != 0) out += ':' + std::to_string(line) + ':' + std::to_string(column);
    return out + ": " + message;
}

Checked check(const std::filesystem::path& file, const Options& options) {
    Options used = options;
    if (!used.environment) used.environment = process_environment;
    Complaints complaints(file.string());
    Checked out;
    std::error_code failed;
    std::filesystem::path absolute = std::filesystem::absolute(file, failed);
    if (failed) absolute = file;
    absolute = absolute.lexically_normal();

    FileText read = read_file(file);
    out.readable = read.readable;
    if (!read.wrong.empty())
        complaints.add({}, std::move(read.wrong));
    else
        out.config = judge_file(read.text, absolute, used, complaints);
    out.problems = complaints.take();
    if (!out.problems.empty()) out.config.reset();
    if (out.config) out.config->file = absolute;
    return out;
}

Result<Config> load(const std::filesystem::path& file, const Options& options) {
    Checked checked = check(file, options);
    if (checked.config) return std::move(*checked.config);
    std::string lines;
    for (const Problem& problem : checked.problems)
        lines += (lines.empty() ? "" : "\n") + problem.text();
    std::error_code failed;
    if (checked.readable) return fail(Code::Invalid, lines);
    return fail(std::filesystem::exists(file, failed) || failed ? Code::Io : Code::NotFound, lines);
}

}  // namespace hf::config
