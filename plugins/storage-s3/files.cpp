#include "plugins/storage-s3/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "abi/base/unique_fd.hpp"
#include "plugins/storage-s3/credentials.hpp"

namespace hf::s3 {
namespace {

constexpr const char* kSystemCa = "/etc/ssl/certs/ca-certificates.crt";

// From its beginning, wherever somebody else left off.
Result<std::string> read_all(int fd, std::size_t most, const std::string& name) {
    std::string out;
    std::array<char, 16384> block{};
    for (;;) {
        ssize_t got = ::pread(fd, block.data(), block.size(), static_cast<off_t>(out.size()));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(errno, "cannot read " + name);
        if (got == 0) return out;
        out.append(block.data(), static_cast<std::size_t>(got));
        if (out.size() > most)
            return fail(
                Code::Invalid,
                name + " is longer than " + std::to_string(most) + " bytes: is it the right file?");
    }
}

Result<std::string> read_file(int passed, const std::string& path, std::size_t most) {
    if (passed >= 0) return read_all(passed, most, path);
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return fail_errno(errno, "cannot open " + path);
    return read_all(fd.get(), most, path);
}

}  // namespace

Result<Credentials> find_credentials(const Settings& settings, const Passed& passed) {
    if (!settings.access_key_id.empty())
        return Credentials{
            settings.access_key_id, settings.secret_access_key, settings.session_token};
    const int fd = passed("credentials_file");
    if (fd < 0 && settings.credentials_file.empty())
        return fail(Code::Invalid,
                    "there are no access keys: set plugin.storage.credentials_file to a file in "
                    "the form of ~/.aws/credentials, or start holdfastd with AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY");
    const std::string name =
        settings.credentials_file.empty() ? "of the environment" : settings.credentials_file;
    HF_ASSIGN(const std::string text, read_file(fd, name, kCredentialsBytesMax));
    return parse_credentials(text, settings.profile, name);
}

Result<std::string> find_ca(const Settings& settings, const Passed& passed) {
    if (!settings.endpoint.tls) return std::string();
    const int fd = passed("ca_file");
    const std::string path = settings.ca_file.empty() ? kSystemCa : settings.ca_file;
    HF_ASSIGN(std::string pem, read_file(fd, path, kCaBytesMax));
    if (pem.find("-----BEGIN CERTIFICATE-----") == std::string::npos)
        return fail(Code::Invalid, "ca_file " + path + " holds no certificate in PEM");
    return pem;
}

}  // namespace hf::s3
