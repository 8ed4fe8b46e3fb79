// The programs that slots run, kept by their content under <data>/builds/<hash>/<name>: what was hashed is what starts, at
// each restart, revert and roll-back, whatever became of the file it came from. A file that is written over in place keeps
// its inode, so neither a link nor an open descriptor would do; only a copy does.
//
// Blocks the loop for the reading and writing of one binary (ours have 2 to 4 MB). A copy that a power cut or a hand left
// damaged is seen when it is next wanted, because it is read again, and is made anew.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "abi/base/result.hpp"
#include "agent/core/types.hpp"

namespace hf::daemon {

class Builds {
public:
    explicit Builds(std::filesystem::path dir) : dir_(std::move(dir)) {}

    // Keeps the present content of a binary and answers its fingerprint (not a signature): 32 hexadecimal digits. Invalid:
    // no plain file, not executable, or above 256 MiB; Io: it could not be read, or the copy not be written.
    [[nodiscard]] Result<std::string> keep(const std::filesystem::path& binary) const;

    // What to start for a build that was kept.
    [[nodiscard]] std::filesystem::path file(const core::Build& build) const;

    // Removes every copy but those of `wanted`: at most four a slot (in charge, the one before, being swapped in, named in
    // agent.toml). A process whose copy is removed runs on.
    void keep_only(const std::set<std::filesystem::path>& wanted) const;

private:
    std::filesystem::path dir_;
};

}  // namespace hf::daemon
