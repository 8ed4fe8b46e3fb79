// A small JSON document that survives kill -9: written to a temporary file, synced, renamed over the old one, directory
// synced. What cannot be read back as our own is set aside as <name>.bad-<n>, never deleted, and the caller starts fresh.
// Not a journal: one writer, whole document each time, blocking (a few ms of fsync), so only for rare changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "abi/base/result.hpp"

namespace hf::control {

// Our documents are a few KiB (branded builds, journal stream id); a larger file is not one of ours.
inline constexpr std::size_t kStateBytesMax = 4U << 20U;
// Copies of bad documents kept beside it; the last one is overwritten after that.
inline constexpr unsigned kBadCopiesMax = 9;

class StateFile {
public:
    explicit StateFile(std::filesystem::path path) : path_(std::move(path)) {}

    enum class Found : std::uint8_t { Good, Missing, SetAside };
    // Judges a document that parsed; a failure sets it aside as well.
    using Judge = std::function<Result<void>(const nlohmann::json&)>;

    // Reads into `value`, which is left alone unless Good. SetAside: `note` says what was wrong and where the copy is.
    // A failure means the path is something we must not touch (directory, symlink, device) or the disk refused; the
    // message names it.
    Result<Found> load(nlohmann::json& value, std::string& note, const Judge& judge = {}) const;

    // On failure the old document is still whole.
    Result<void> save(const nlohmann::json& value) const;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace hf::control
