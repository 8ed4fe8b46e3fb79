#include "agent/store/journal.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "abi/base/check.hpp"

namespace hf::store {

namespace {
// Writes of one transaction: at 60 KiB each they stay below 16 MiB of dirty pages.
constexpr std::size_t kGroupMax = 256;
// Letters that wait for the disk: an actor may send to nobody faster than that writes. Of the largest size they are a group.
constexpr std::size_t kLettersWaitingMax = 256;

core::Event answer_to(const core::JournalAppend& append, const JournalFile::Outcome& outcome) {
    return core::JournalAppended{append.op, outcome.outcome, outcome.reason};
}
core::Event answer_to(const core::JournalRemove& remove, const JournalFile::Outcome& outcome) {
    return core::JournalRemoved{remove.op, outcome.outcome == core::Outcome::Applied};
}
}  // namespace

Result<std::unique_ptr<Journal>> Journal::open(uv_loop_t* loop,
                                               const std::filesystem::path& directory,
                                               std::uint64_t bytes_max,
                                               Answered answered,
                                               Lost lost) {
    HF_ASSIGN(std::unique_ptr<JournalFile> file, JournalFile::open(directory, bytes_max));
    HF_ASSIGN(core::JournalLoaded content, file->load());
    UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell.valid()) return fail_errno(errno, "making the journal's bell");
    std::unique_ptr<Journal> out(
        new Journal(loop, std::move(file), std::move(bell), std::move(answered), std::move(lost)));
    out->content_ = std::move(content);
    return out;
}

Journal::Journal(
    uv_loop_t* loop, std::unique_ptr<JournalFile> file, UniqueFd bell, Answered answered, Lost lost)
    : file_(std::move(file)),
      bell_(std::move(bell)),
      answered_(std::move(answered)),
      lost_(std::move(lost)),
      poll_(std::make_unique<loop::Poll>(loop, bell_.get(), [this] { hand_over(); })) {
    // Signals are the loop thread's.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Journal::~Journal() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void Journal::write(Write write) {
    bool lost = false;
    {
        const std::lock_guard lock(mutex_);
        const bool letter = std::holds_alternative<core::JournalBury>(write);
        lost = letter && letters_waiting_ >= kLettersWaitingMax;
        if (lost) {
            ++lost_letters_;
            lost_why_ = "more of them came than the disk takes";
        } else {
            letters_waiting_ += letter ? 1 : 0;
            queue_.push_back(std::move(write));
        }
    }
    if (lost) return ring();
    wake_.notify_one();
}

void Journal::ring() {
    const std::uint64_t one = 1;
    HF_CHECK(::write(bell_.get(), &one, sizeof one) == sizeof one, "an eventfd takes a ring");
}

void Journal::run() {
    for (;;) {
        std::vector<Write> group;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
            if (queue_.empty()) return;
            const auto end =
                queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), kGroupMax));
            std::move(queue_.begin(), end, std::back_inserter(group));
            queue_.erase(queue_.begin(), end);
            for (const Write& write : group)
                if (std::holds_alternative<core::JournalBury>(write)) --letters_waiting_;
        }
        const JournalFile::Outcome outcome = file_->apply(group);
        std::vector<core::Event> answers;
        std::size_t lost = 0;
        for (const Write& write : group) {
            if (const auto* append = std::get_if<core::JournalAppend>(&write))
                answers.push_back(answer_to(*append, outcome));
            if (const auto* remove = std::get_if<core::JournalRemove>(&write))
                answers.push_back(answer_to(*remove, outcome));
            if (std::holds_alternative<core::JournalBury>(write) &&
                outcome.outcome != core::Outcome::Applied)
                ++lost;
        }
        if (answers.empty() && lost == 0) continue;
        {
            const std::lock_guard lock(mutex_);
            std::move(answers.begin(), answers.end(), std::back_inserter(answers_));
            lost_letters_ += lost;
            if (lost != 0) lost_why_ = outcome.reason;
        }
        ring();
    }
}

void Journal::hand_over() {
    std::uint64_t rings = 0;
    if (::read(bell_.get(), &rings, sizeof rings) < 0) return;
    std::vector<core::Event> answers;
    std::size_t lost = 0;
    std::string why;
    {
        const std::lock_guard lock(mutex_);
        answers.swap(answers_);
        lost = std::exchange(lost_letters_, 0);
        why.swap(lost_why_);
    }
    for (core::Event& answer : answers) answered_(std::move(answer));
    if (lost != 0) lost_(lost, why);
}

}  // namespace hf::store
