// Files that a plugin reads and its user may not: keys and certificates. The daemon opens them anew for each generation and
// hands over the descriptors, under the names of their settings. What is in them it does not look at.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/core/types.hpp"

namespace hf::daemon {

using HandedFiles = std::vector<std::pair<std::string, UniqueFd>>;

// A gateway: tls_certificate, tls_key, peer_secret_file. storage-s3: ca_file, credentials_file; without the latter the access
// keys of the daemon's own environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), as a memory file of that
// name, so that no secret is ever a setting.
[[nodiscard]] Result<HandedFiles> open_files_for(core::Kind kind, const core::Build& build);

// Refuses a secret that no gateway could use, so that the start says so and not its tenth try.
[[nodiscard]] Result<void> check_peer_secret(const std::string& path);

}  // namespace hf::daemon
