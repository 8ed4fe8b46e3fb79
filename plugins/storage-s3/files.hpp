// The two files a start reads: access keys and certificates. They come as descriptors of their setting's name, opened by the
// supervisor, which may read what an instance's user may not; else they are opened here by path.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "abi/base/result.hpp"
#include "plugins/storage-s3/settings.hpp"
#include "plugins/storage-s3/sign.hpp"

namespace hf::s3 {

// The descriptor of that name, or -1. It stays the caller's.
using Passed = std::function<int(std::string_view name)>;

// Debian's bundle: 200 KiB. Who has more than this trusts too many.
inline constexpr std::size_t kCaBytesMax = std::size_t{4} * 1024 * 1024;

[[nodiscard]] Result<Credentials> find_credentials(const Settings& settings, const Passed& passed);
// PEM; empty for an endpoint without TLS.
[[nodiscard]] Result<std::string> find_ca(const Settings& settings, const Passed& passed);

}  // namespace hf::s3
