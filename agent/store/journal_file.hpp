// The journal on disk: one LMDB environment of the daemon's own, in a directory that the data directory's lock protects.
//
// Tables: `meta` (format, the stream's name, the next number), `items` (what was accepted for later and is not applied yet, by
// number) and `letters` (messages that were given up, oldest first). Each batch is one transaction with a full fsync: what was
// answered Applied survives kill -9 and a power cut as far as the disk keeps what it was told to; it does not survive the
// disk. One thread writes; letters() may be asked by another meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "abi/base/result.hpp"
#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"

namespace hf::store {

using Write = std::variant<core::JournalAppend, core::JournalRemove, core::JournalBury>;

class JournalFile {
public:
    // Letters kept; beyond it the oldest go.
    static constexpr std::size_t kLettersMax = 4096;

    // Makes the directory and the environment when they are not there. `bytes_max`: of the items together. A damaged or
    // foreign file is refused by name and left as it is.
    static Result<std::unique_ptr<JournalFile>> open(const std::filesystem::path& directory,
                                                     std::uint64_t bytes_max);
    ~JournalFile();
    JournalFile(const JournalFile&) = delete;
    JournalFile& operator=(const JournalFile&) = delete;

    [[nodiscard]] Result<core::JournalLoaded> load() const;

    // Applied: all of the batch is on disk. Refused: nothing of it is, nor will be. Unknown: it may be; the file takes
    // nothing more until it is opened again.
    struct Outcome {
        core::Outcome outcome = core::Outcome::Applied;
        std::string reason;
    };
    [[nodiscard]] Outcome apply(std::span<const Write> batch);

    // The newest `limit` of them, newest first.
    [[nodiscard]] Result<std::vector<core::DeadLetter>> letters(std::size_t limit) const;

private:
    struct Env;
    explicit JournalFile(std::filesystem::path directory);
    [[nodiscard]] Result<void> open_env(std::uint64_t bytes_max);
    [[nodiscard]] Result<void> begin_stream();
    [[nodiscard]] std::string sentence(int code) const;
    [[nodiscard]] Error damaged(const std::string& how) const;

    std::filesystem::path directory_;
    std::unique_ptr<Env> env_;
    bool broken_ = false;
};

}  // namespace hf::store
