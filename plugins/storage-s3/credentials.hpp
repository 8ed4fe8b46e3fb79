// A file with access keys in the form of ~/.aws/credentials. Responsible for reading its text and for saying which profile
// lacks what; never for telling a secret.
#pragma once

#include <string_view>

#include "abi/base/result.hpp"
#include "plugins/storage-s3/sign.hpp"

namespace hf::s3 {

// Such files hold a few profiles; more is another file. It is read whole.
inline constexpr std::size_t kCredentialsBytesMax = std::size_t{64} * 1024;

// `name` stands in the refusals only.
[[nodiscard]] Result<Credentials> parse_credentials(std::string_view text,
                                                    std::string_view profile,
                                                    std::string_view name);

}  // namespace hf::s3
