#include "agent/daemon/handed_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "agent/log/log.hpp"

namespace hf::daemon {
namespace {

constexpr std::array<std::string_view, 5> kFileSettings{
    "tls_certificate", "tls_key", "ca_file", "credentials_file", "peer_secret_file"};

bool is_file(core::Kind kind, const core::Build& build, std::string_view key) {
    if (key.starts_with("tls_") || key == "peer_secret_file") return kind == core::Kind::Gateway;
    return build.use == "storage-s3";
}

std::string variable(const char* name) {
    const char* value =
        std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets variables here
    return value == nullptr ? std::string() : value;
}

// In the form of a credentials file, for whatever profile is asked for.
Result<UniqueFd> keys_of_environment(const std::string& profile) {
    const std::string id = variable("AWS_ACCESS_KEY_ID");
    const std::string secret = variable("AWS_SECRET_ACCESS_KEY");
    if (id.empty() || secret.empty()) return UniqueFd();
    std::string text = "[" + profile + "]\naws_access_key_id = " + id +
                       "\naws_secret_access_key = " + secret + "\n";
    if (const std::string token = variable("AWS_SESSION_TOKEN"); !token.empty())
        text += "aws_session_token = " + token + "\n";
    UniqueFd file(::memfd_create("access keys", MFD_CLOEXEC));
    if (!file.valid() ||
        ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        return fail_errno(errno, "handing over the access keys of the environment");
    return file;
}

// What guards it from guessing, before whatever stands around it.
constexpr off_t kSecretBytesMin = 32;

}  // namespace

Result<void> check_peer_secret(const std::string& path) {
    const std::string name = "peer_secret_file = " + path;
    // Not blocking: a pipe there must not hold up the start.
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) return fail_errno(errno, "cannot open " + name);
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) return fail_errno(errno, "cannot look at " + name);
    if (!S_ISREG(facts.st_mode)) return fail(Code::Invalid, name + " is not a plain file");
    if (facts.st_size < kSecretBytesMin)
        return fail(Code::Invalid,
                    name + " has " + std::to_string(facts.st_size) +
                        " bytes; a secret has 32 at least, for instance of `openssl rand -hex 32`");
    if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        log::warn("daemon",
                  "others than its owner may use the secret of the nodes: chmod 600",
                  {{"file", path}});
    return {};
}

Result<HandedFiles> open_files_for(core::Kind kind, const core::Build& build) {
    HandedFiles files;
    std::string profile;
    bool keys = false;
    for (const auto& [key, path] : build.settings) {
        if (key == "profile") profile = path;
        bool named = false;
        for (const std::string_view name : kFileSettings) named = named || key == name;
        if (!named || path.empty() || !is_file(kind, build, key)) continue;
        UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        // Most machines have the bundle; whether it is needed is the plugin's to say.
        if (!file.valid() && key == "ca_file") continue;
        if (!file.valid()) return fail_errno(errno, "cannot open " + key + " = " + path);
        keys = keys || key == "credentials_file";
        files.emplace_back(key, std::move(file));
    }
    if (build.use == "storage-s3" && !keys) {
        HF_ASSIGN(UniqueFd file, keys_of_environment(profile));
        if (file.valid()) files.emplace_back("credentials_file", std::move(file));
    }
    return files;
}

}  // namespace hf::daemon
