#include "plugins/storage-s3/credentials.hpp"

#include <string>

namespace hf::s3 {
namespace {

std::string_view trim(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r";
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

Result<Credentials> parse_credentials(std::string_view text,
                                      std::string_view profile,
                                      std::string_view name) {
    Credentials out;
    bool inside = false;
    bool found = false;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = trim(text.substr(0, end));
        text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
        if (line.empty() || line.front() == '#' || line.front() == ';') continue;
        if (line.front() == '[') {
            const std::string_view title =
                trim(line.substr(1,
                                 line.find(']') == std::string_view::npos ? std::string_view::npos
                                                                          : line.find(']') - 1));
            inside = title == profile;
            found = found || inside;
            continue;
        }
        const std::size_t equals = line.find('=');
        if (!inside || equals == std::string_view::npos) continue;
        const std::string_view key = trim(line.substr(0, equals));
        const std::string_view value = trim(line.substr(equals + 1));
        if (key == "aws_access_key_id") out.access_key_id = value;
        if (key == "aws_secret_access_key") out.secret_access_key = value;
        if (key == "aws_session_token") out.session_token = value;
    }
    const std::string where = "credentials file " + std::string(name) + ": ";
    if (!found)
        return fail(Code::Invalid,
                    where + "it has no section [" + std::string(profile) +
                        "]; name another one as the setting profile");
    if (out.access_key_id.empty() || out.secret_access_key.empty())
        return fail(Code::Invalid,
                    where + "section [" + std::string(profile) +
                        "] needs aws_access_key_id and aws_secret_access_key");
    return out;
}

}  // namespace hf::s3
