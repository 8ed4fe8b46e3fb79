// The daemon's journal: takes the core's writes on the loop thread, does them in order and in groups on a thread of its own,
// and hands the answers back on the loop thread. While a group is being written the next one gathers: the more wait, the more
// share one fsync. Idle it wakes nobody.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/core/events.hpp"
#include "agent/loop/loop.hpp"
#include "agent/store/journal_file.hpp"

namespace hf::store {

class Journal {
public:
    using Answered = std::function<void(core::Event)>;  // JournalAppended or JournalRemoved
    // Letters could not be kept: how many, and why.
    using Lost = std::function<void(std::size_t letters, const std::string& why)>;

    // Both are called on the loop thread, from the loop.
    static Result<std::unique_ptr<Journal>> open(uv_loop_t* loop,
                                                 const std::filesystem::path& directory,
                                                 std::uint64_t bytes_max,
                                                 Answered answered,
                                                 Lost lost);
    // Finishes what was asked; its answers are not given any more.
    ~Journal();
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;

    // What the file held when it was opened; once.
    [[nodiscard]] core::JournalLoaded take_content() { return std::move(content_); }
    // Never blocks. The core's bounds on what the journal holds bound what is open here.
    void write(Write write);
    [[nodiscard]] Result<std::vector<core::DeadLetter>> letters(std::size_t limit) const {
        return file_->letters(limit);
    }

private:
    Journal(uv_loop_t* loop,
            std::unique_ptr<JournalFile> file,
            UniqueFd bell,
            Answered answered,
            Lost lost);
    void run();
    void ring();
    void hand_over();

    std::unique_ptr<JournalFile> file_;
    core::JournalLoaded content_;
    UniqueFd bell_;  // eventfd: answers wait
    Answered answered_;
    Lost lost_;
    std::unique_ptr<loop::Poll> poll_;

    std::mutex mutex_;  // guards what follows
    std::condition_variable wake_;
    std::vector<Write> queue_;
    std::size_t letters_waiting_ = 0;  // in queue_
    std::vector<core::Event> answers_;
    std::size_t lost_letters_ = 0;
    std::string lost_why_;
    bool stop_ = false;

    std::thread thread_;
};

}  // namespace hf::store
