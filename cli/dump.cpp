#include "cli/dump.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/text.hpp"

namespace hf::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLogFilesMax = 4;        // the newest: what agent.toml keeps by default
constexpr std::size_t kListedMax = 500;        // files of one directory, by name and size
constexpr std::size_t kProcessesMax = 80;      // 64 runtimes and the others
constexpr std::size_t kFactBytesMax = 16'384;  // of one file in /proc
constexpr std::uint32_t kActorsShown = 1'000;
// For tar and holdfastd: 32 MiB are packed in two seconds.
constexpr std::chrono::milliseconds kProgramTimeout{60'000};
constexpr std::string_view kLeftOut = "(left out)";

// What the kernel grants and how it is set up; each is missing on some machine.
constexpr const char* kFacts[] = {"/proc/version",
                                  "/etc/os-release",
                                  "/proc/cpuinfo",
                                  "/proc/meminfo",
                                  "/proc/loadavg",
                                  "/proc/self/cgroup",
                                  "/sys/fs/cgroup/cgroup.controllers",
                                  "/proc/sys/kernel/seccomp/actions_avail",
                                  "/sys/kernel/security/lsm",
                                  "/proc/sys/kernel/unprivileged_userns_clone",
                                  "/proc/sys/user/max_user_namespaces",
                                  "/proc/sys/vm/max_map_count",
                                  "/proc/sys/vm/overcommit_memory",
                                  "/proc/sys/fs/file-max",
                                  "/proc/self/limits"};

// The last `bytes_max` bytes of a plain file; empty when it cannot be read.
std::string tail_of(const fs::path& path, std::size_t bytes_max) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return {};
    std::error_code error;
    const auto size = fs::file_size(path, error);
    // Files of /proc say 0 and have more.
    if (!error && size > bytes_max) in.seekg(static_cast<std::streamoff>(size - bytes_max));
    std::string out(bytes_max, '\0');
    in.read(out.data(), static_cast<std::streamsize>(out.size()));
    out.resize(static_cast<std::size_t>(in.gcount()));
    return out;
}

bool sounds_secret(std::string key) {
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) {
        return static_cast<char>(std::tolower(c));
    });
    constexpr const char* kWords[] = {
        "secret", "token", "passw", "credential", "private", "apikey", "api_key"};
    return std::any_of(std::begin(kWords), std::end(kWords), [&](const char* word) {
        return key.find(word) != std::string::npos;
    });
}

bool is_plain_value(const std::string& text) {
    return text == "true" || text == "false" ||
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// Gathers texts, without what must not leave the machine.
class Bundle {
public:
    explicit Bundle(fs::path directory) : directory_(std::move(directory)) {}

    // This text is nobody's business, wherever it turns up; short ones are no secrets, and would turn up everywhere.
    void hide(const std::string& text) {
        constexpr std::size_t kSecretBytesMin = 4;
        if (text.size() < kSecretBytesMin || is_plain_value(text)) return;
        secrets_.insert(text);
        // As JSON has it, without the quotes.
        const std::string dumped = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
        secrets_.insert(dumped.substr(1, dumped.size() - 2));
    }

    Result<void> add(const std::string& name, std::string text) {
        for (const std::string& secret : secrets_)
            for (auto at = text.find(secret); at != std::string::npos;
                 at = text.find(secret, at + kLeftOut.size()))
                text.replace(at, secret.size(), kLeftOut);
        if (text.size() > kDumpFileBytesMax)
            text = "(the beginning is left out)\n" + text.substr(text.size() - kDumpFileBytesMax);
        if (bytes_ + text.size() > kDumpBytesMax) {
            left_out.push_back(name);
            return {};
        }
        std::error_code error;
        const fs::path path = directory_ / name;
        fs::create_directories(path.parent_path(), error);
        std::ofstream out(path, std::ios::binary);
        out << text;
        out.close();
        if (!out) return fail(Code::Io, "cannot write " + path.string());
        bytes_ += text.size();
        files.push_back(name);
        return {};
    }
    Result<void> add(const std::string& name, const Json& json) {
        return add(name, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    }

    std::vector<std::string> files;
    std::vector<std::string> left_out;  // beyond kDumpBytesMax

private:
    fs::path directory_;
    std::set<std::string> secrets_;
    std::size_t bytes_ = 0;
};

// The text of a plugin's own settings, and of any value whose key sounds like a secret.
void find_secrets(const Json& json, bool own_settings, Bundle& bundle) {
    if (json.is_array())
        for (const Json& one : json) find_secrets(one, own_settings, bundle);
    if (!json.is_object()) return;
    const std::string table = field(json, "table");
    const bool value_of_settings =
        table.ends_with(".settings") || sounds_secret(field(json, "key"));
    for (const auto& [key, value] : json.items()) {
        const bool own = own_settings || (value_of_settings && key == "value");
        if (value.is_string() && (own || sounds_secret(key))) {
            // As the file has it, in quotes, and as a plugin is given it.
            auto text = value.get<std::string>();
            bundle.hide(text);
            if (text.size() > 2 && text.front() == '"' && text.back() == '"')
                bundle.hide(text.substr(1, text.size() - 2));
        }
        const bool policy =
            key == "settings" && !field(json, "policy").empty() && field(json, "policy") != "-";
        find_secrets(value, policy, bundle);
    }
}

std::string facts() {
    std::string out;
    utsname name{};
    if (::uname(&name) == 0)
        out += std::string("uname: ") + name.sysname + " " + name.release + " " + name.version +
               " " + name.machine + "\n";
    out += "uid " + std::to_string(::geteuid()) + "\n";
    for (const char* path : kFacts) {
        std::ifstream in(path);
        std::string text(kFactBytesMax, '\0');
        in.read(text.data(), static_cast<std::streamsize>(text.size()));
        text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
        out += std::string("--- ") + path + "\n" + (in.is_open() ? text : "(not there)\n");
        if (!out.ends_with('\n')) out += '\n';
    }
    return out;
}

// Names and sizes only.
std::string listing(const fs::path& data) {
    std::string out;
    struct statvfs room {};
    if (::statvfs(data.c_str(), &room) == 0)
        out += "free " + std::to_string(room.f_bavail * room.f_frsize) + " of " +
               std::to_string(room.f_blocks * room.f_frsize) + " bytes\n";
    std::error_code error;
    for (const char* name :
         {"run", "state", "log", "dumps", "builds", "modules", "journal", "store"}) {
        out += std::string("--- ") + name + "\n";
        std::vector<std::string> lines;
        for (auto it = fs::recursive_directory_iterator(
                 data / name, fs::directory_options::skip_permission_denied, error);
             it != fs::recursive_directory_iterator() && !error && lines.size() < kListedMax;
             it.increment(error)) {
            struct stat about {};
            if (::lstat(it->path().c_str(), &about) != 0 || S_ISDIR(about.st_mode)) continue;
            lines.push_back(it->path().lexically_relative(data / name).string() + "  " +
                            std::to_string(about.st_size) + " bytes, " +
                            std::to_string(about.st_blocks * 512) + " on disk, changed " +
                            std::to_string(about.st_mtime) + ", owner " +
                            std::to_string(about.st_uid));
        }
        std::sort(lines.begin(), lines.end());
        for (const std::string& line : lines) out += printable(line) + "\n";
    }
    return out;
}

Result<void> add_logs(const fs::path& data, Bundle& bundle) {
    std::error_code error;
    std::vector<std::pair<fs::file_time_type, fs::path>> found;
    for (const auto& one : fs::directory_iterator(data / "log", error))
        if (one.is_regular_file(error)) found.emplace_back(one.last_write_time(error), one.path());
    std::sort(found.rbegin(), found.rend());
    if (found.size() > kLogFilesMax) found.resize(kLogFilesMax);
    for (const auto& [at, path] : found)
        HF_TRY(bundle.add("log/" + path.filename().string(), tail_of(path, kDumpFileBytesMax)));
    return {};
}

Json exits_of(const Json& plugins) {
    Json out = Json::array();
    const Json rows = plugins.is_object() ? plugins.value("plugins", Json::array()) : Json::array();
    for (const Json& row : rows) {
        Json one;
        for (const char* key : {"name", "last_exit", "last_exit_build", "reason", "bad_builds"})
            if (row.is_object() && row.contains(key)) one[key] = row[key];
        one["instances"] = Json::array();
        const Json instances =
            row.is_object() ? row.value("instances", Json::array()) : Json::array();
        for (const Json& instance : instances) {
            Json told;
            for (const char* key : {"index", "generation", "restarts", "last_exit", "last_stderr"})
                if (instance.is_object() && instance.contains(key)) told[key] = instance[key];
            one["instances"].push_back(std::move(told));
        }
        out.push_back(std::move(one));
    }
    return out;
}

// What the kernel says of each process: walls, memory, threads; nothing of what is in it.
std::string processes_of(const Json& plugins) {
    std::string out;
    std::size_t count = 0;
    const Json rows = plugins.is_object() ? plugins.value("plugins", Json::array()) : Json::array();
    for (const Json& row : rows) {
        const Json instances =
            row.is_object() ? row.value("instances", Json::array()) : Json::array();
        for (const Json& instance : instances) {
            const std::string pid = field(instance, "pid");
            if (!is_plain_value(pid) || pid.empty() || ++count > kProcessesMax) continue;
            out += "--- " + field(row, "name") + "/" + field(instance, "index") + " pid " + pid +
                   "\n" + tail_of("/proc/" + pid + "/status", kFactBytesMax) +
                   tail_of("/proc/" + pid + "/cgroup", kFactBytesMax);
        }
    }
    return out;
}

// The file's effective values when the node cannot say them; nothing when the file is another node's.
Json config_on_disk(const Surroundings& around, const fs::path& data) {
    const auto said = hear_beside(around,
                                  "holdfastd",
                                  {"--show-config", config_file(around, "").string(), "--json"},
                                  kProgramTimeout);
    if (!said || said->code != 0) return {};
    Json json = Json::parse(said->out, nullptr, false);
    const Json values = json.is_object() ? json.value("values", Json::array()) : Json::array();
    std::error_code error;
    for (const Json& value : values)
        if (field(value, "table") == "node" && field(value, "key") == "data" &&
            fs::equivalent(field(value, "value"), data, error))
            return json;
    return {};
}

Result<void> gather(const Surroundings& around,
                    const fs::path& data,
                    std::chrono::milliseconds timeout,
                    Bundle& bundle,
                    std::string& why_down) {
    std::vector<std::pair<std::string, Json>> answers;
    for (const char* name : {"config", "plugins", "status", "actors"}) {
        if (!why_down.empty()) break;
        Json request{{"op", name}, {"limit", kActorsShown}};
        if (std::string_view(name) == "config") request["op"] = "config-show";
        Answer answer = ask(data, request, timeout);
        if (answer.exit == Exit::Unreachable || answer.exit == Exit::Timeout) {
            why_down = answer.message;
            continue;
        }
        answers.emplace_back(name,
                             answer.exit == Exit::Ok
                                 ? std::move(answer.result)
                                 : Json{{"error", answer.code}, {"message", answer.message}});
    }
    if (!why_down.empty())
        if (Json json = config_on_disk(around, data); !json.is_null())
            answers.emplace_back("config", std::move(json));
    for (const auto& [name, json] : answers) find_secrets(json, false, bundle);
    for (const auto& [name, json] : answers) {
        HF_TRY(bundle.add(name + ".json", json));
        if (name != "plugins") continue;
        HF_TRY(bundle.add("exit_reports.json", exits_of(json)));
        HF_TRY(bundle.add("processes.txt", processes_of(json)));
    }
    const auto daemon = hear_beside(around, "holdfastd", {"--version"}, kProgramTimeout);
    HF_TRY(bundle.add("version.txt",
                      "holdfast " HF_VERSION ", compiled by " __VERSION__ "\n" +
                          (daemon ? daemon->out : daemon.error().message + "\n")));
    HF_TRY(bundle.add("machine.txt", facts()));
    HF_TRY(bundle.add("files.txt", listing(data)));
    for (const char* name : {"bad_builds.json", "deployed.json"})
        if (std::string text = tail_of(data / "state" / name, kDumpFileBytesMax); !text.empty())
            HF_TRY(bundle.add(std::string("state/") + name, std::move(text)));
    return add_logs(data, bundle);
}

std::string time_now() {
    const std::time_t now = std::time(nullptr);
    tm parts{};
    ::gmtime_r(&now, &parts);
    char text[32];
    return {text, std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts)};
}

// A directory that is gone with this, whatever happens.
struct Staging {
    fs::path path;
    ~Staging() {
        std::error_code ignored;
        if (!path.empty()) fs::remove_all(path, ignored);
    }
};

Result<void> pack(const fs::path& staging, const std::string& name, const fs::path& target) {
    Surroundings system;
    system.executable_dir = "/bin";
    const auto said = hear_beside(
        system, "tar", {"-C", staging.string(), "-czf", target.string(), name}, kProgramTimeout);
    if (!said)
        return fail(Code::Unavailable,
                    "cannot pack the bundle: " + said.error().message +
                        "; name a directory instead of a .tar.gz");
    if (said->code != 0) return fail(Code::Io, "cannot pack the bundle: " + said->err);
    return {};
}

}  // namespace

Result<Json> make_dump(const Surroundings& around,
                       const fs::path& data,
                       const std::string& to,
                       std::chrono::milliseconds timeout) {
    constexpr const char* kName = "holdfast-dump";
    const std::string when = time_now();
    const fs::path target =
        (around.working_dir / (to.empty() ? kName + ("-" + when + ".tar.gz") : to))
            .lexically_normal();
    const bool packed = target.string().ends_with(".tar.gz");
    std::error_code error;
    if (fs::exists(fs::symlink_status(target, error)))
        return fail(Code::Exists, target.string() + " exists already; name another");
    Staging staging;
    fs::path directory = target;
    if (packed) {
        std::string made = (target.parent_path() / ".holdfast-dump-XXXXXX").string();
        if (::mkdtemp(made.data()) == nullptr)
            return fail_errno(errno, "cannot write into " + target.parent_path().string());
        staging.path = made;
        directory = staging.path / kName;
    }
    if (::mkdir(directory.c_str(), S_IRWXU) != 0)
        return fail_errno(errno, "cannot make " + directory.string());
    Bundle bundle(directory);
    std::string why_down;
    HF_TRY(gather(around, data, timeout, bundle, why_down));
    std::string head =
        "A bundle for a bug report, made by holdfast " HF_VERSION " at " + when +
        " of the node in " + data.string() + ".\n" +
        (why_down.empty() ? "The node answered.\n"
                          : "The node did not answer: " + why_down + "\n") +
        "Left out: the store, the content of key files, the key of compiled modules, "
        "texts of plugins' own settings.\nWhat actors log is in the logs.\n";
    for (const std::string& name : bundle.left_out)
        head += "Too large for the bundle: " + name + "\n";
    HF_TRY(bundle.add("README.txt", head));
    if (packed) {
        HF_TRY(pack(staging.path, kName, target));
        fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write, error);
    }
    const auto bytes = packed ? fs::file_size(target, error) : std::uintmax_t{0};
    return Json{{"text",
                 "written to " + target.string() +
                     (why_down.empty() ? "" : "; the node did not answer: " + why_down)},
                {"path", target.string()},
                {"bytes", bytes},
                {"node", why_down.empty() ? "up" : "down"},
                {"files", bundle.files},
                {"left_out", bundle.left_out}};
}

}  // namespace hf::cli
