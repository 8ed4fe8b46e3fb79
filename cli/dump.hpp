// holdfast dump: one bundle for a bug report, gathered from the node when it answers and from what lies on disk when it does
// not. Responsible for what goes in and for what must not: no store, no module key, no content of key files, no text of a
// plugin's own settings. What actors themselves log is in the logs.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>

#include "abi/base/result.hpp"
#include "cli/surroundings.hpp"
#include "cli/wire.hpp"

namespace hf::cli {

// Of one file in the bundle: the end of a log of default size is a day of a busy node. What is longer loses its beginning.
inline constexpr std::size_t kDumpFileBytesMax = 4U << 20U;
// All of them before compression: four logs, the largest answers of a node, and some; a mail takes it compressed.
inline constexpr std::size_t kDumpBytesMax = 32U << 20U;

// Gathers what is known of the node of `data` into `to`: a file that ends in .tar.gz, or a directory that is made; empty: a
// file in the working directory, named by the time. Answers {text, path, bytes, node, files, left_out}.
// `timeout` is for each answer of the node. Exists: there is something at `to` already; Io, Unavailable: it could not be written, or there is no tar.
[[nodiscard]] Result<Json> make_dump(const Surroundings& around,
                                     const std::filesystem::path& data,
                                     const std::string& to,
                                     std::chrono::milliseconds timeout);

}  // namespace hf::cli
