// Gives a directory, and the plain files directly in it, to the instance's uid. Deeper folders are left alone.
#pragma once

#include <cstdint>
#include <string>

#include "abi/base/result.hpp"

namespace hf::jail {

[[nodiscard]] Result<void> own_directory(const std::string& path, std::uint32_t uid);

}  // namespace hf::jail
