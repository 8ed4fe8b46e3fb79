// The only file of the supervisor that names spdlog.
#include "agent/log/log.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <memory>
#include <mutex>
#include <vector>

#include "abi/base/clock.hpp"
#include "agent/log/fold.hpp"

namespace hf::log {

namespace {

// One line with its time and line feed. PIPE_BUF: a pipe that says it is writable takes so much without blocking.
constexpr std::size_t kLineBytesMax = PIPE_BUF;
static_assert(kLineBytesMax == 4096);
constexpr std::size_t kTimeBytes = 32;  // "2026-11-30T03:05:11.123Z " and the line feed, rounded up
constexpr std::size_t kBodyBytesMax = kLineBytesMax - kTimeBytes;
constexpr std::size_t kValueBytesMax = 2048;  // one field must not push all others out

// stderr is often a pipe to something that may stand still. spdlog's own sink would wait for it, and the loop with it.
class PatientStderr final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    [[nodiscard]] std::uint64_t lost() const { return lost_; }

protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t text;
        formatter_->format(message, text);
        pollfd ready{STDERR_FILENO, POLLOUT, 0};
        if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0 ||
            ::write(STDERR_FILENO, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
            ++lost_;
    }
    void flush_() override {}

private:
    std::uint64_t lost_ = 0;
};

class State {
public:
    State() { rebuild(Options{}, nullptr); }

    Result<void> init(const Options& options) {
        std::shared_ptr<spdlog::sinks::sink> file;
        if (!options.file.empty()) {
            HF_ASSIGN(file, open_file(options));
        }
        const std::lock_guard lock(mutex_);
        rebuild(options, std::move(file));
        return {};
    }

    void set_level(Level level) { level_.store(level, std::memory_order_relaxed); }
    [[nodiscard]] bool enabled(Level level) const {
        return level >= level_.load(std::memory_order_relaxed);
    }

    void write(Level level, std::string_view room, std::string_view text, Fields fields) {
        std::string message = std::string(room) + ' ' + clean(text, kBodyBytesMax / 2);
        std::string body = message;
        for (const Field& field : fields) {
            body += ' ';
            body += field.key;
            body += '=';
            append_value(body, clean(field.value, kValueBytesMax));
        }
        const std::lock_guard lock(mutex_);
        offer(level, message, body, true);
    }

    void plugin_line(Level level,
                     std::string_view source,
                     std::string_view line,
                     std::uint64_t dropped) {
        const std::lock_guard lock(mutex_);
        std::uint64_t suppressed = 0;
        if (!cap_.admit(monotonic_ns(), source, dropped, suppressed)) return;
        const std::string message = "plugin said source=" + clean(source, kValueBytesMax / 8);
        std::string body = message + " line=";
        append_value(body, clean(line, kValueBytesMax));
        if (suppressed != 0) body += " suppressed=" + std::to_string(suppressed);
        offer(level, message, body, false);
    }

    void flush_folds() {
        const std::lock_guard lock(mutex_);
        lines_.clear();
        folder_.flush(monotonic_ns(), lines_);
        cap_.flush(lines_);
        put();
        logger_->flush();
    }

    [[nodiscard]] Stats stats() {
        const std::lock_guard lock(mutex_);
        return {written_, folder_.folded(), cap_.capped(), lost_ + (stderr_ ? stderr_->lost() : 0)};
    }

private:
    static Result<std::shared_ptr<spdlog::sinks::sink>> open_file(const Options& options) {
        std::error_code failed;
        std::filesystem::create_directories(options.file.parent_path(), failed);
        if (failed)
            return fail_errno(
                failed.value(),
                "cannot create the log directory " + options.file.parent_path().string());
        // Opening a FIFO or device would wait or do worse; a symlink is somebody else's idea.
        struct stat facts {};
        if (::lstat(options.file.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
            return fail(Code::Refused,
                        "the log " + options.file.string() + " is not a plain file; move it away");
        const std::uint32_t files = std::max<std::uint32_t>(options.files, 2);
        // Left by a configuration that kept more: they would count against no cap.
        for (std::uint32_t i = files; i <= kRotatedMax; ++i) {
            std::filesystem::path old = options.file;
            old.replace_extension(std::to_string(i) + options.file.extension().string());
            if (::unlink(old.c_str()) != 0) break;
        }
        spdlog::file_event_handlers handlers;
        handlers.after_open = [](const spdlog::filename_t&, std::FILE* file) {
            // Plugins must not inherit it, and others need not read what clients sent.
            static_cast<void>(::fcntl(::fileno(file), F_SETFD, FD_CLOEXEC));
            static_cast<void>(::fchmod(::fileno(file), S_IRUSR | S_IWUSR | S_IRGRP));
        };
        try {
            const std::uint64_t bytes =
                std::max<std::uint64_t>(options.file_bytes_max, kLineBytesMax);
            return std::static_pointer_cast<spdlog::sinks::sink>(
                std::make_shared<spdlog::sinks::rotating_file_sink<spdlog::details::null_mutex>>(
                    options.file.string(), bytes, files - 1, false, handlers));
        } catch (const spdlog::spdlog_ex& error) {
            return fail(Code::Io,
                        "cannot open the log " + options.file.string() + ": " + error.what());
        }
    }

    void rebuild(const Options& options, std::shared_ptr<spdlog::sinks::sink> file) {
        if (stderr_) lost_ += stderr_->lost();
        stderr_.reset();
        std::vector<spdlog::sink_ptr> sinks;
        if (options.to_stderr) {
            stderr_ = std::make_shared<PatientStderr>();
            sinks.push_back(stderr_);
        }
        if (file) sinks.push_back(std::move(file));
        logger_ = std::make_unique<spdlog::logger>("holdfastd", sinks.begin(), sinks.end());
        logger_->set_formatter(std::make_unique<spdlog::pattern_formatter>(
            "%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc));
        logger_->set_level(spdlog::level::trace);
        // Every line at once: there is no timer that would write a buffered one later.
        logger_->flush_on(spdlog::level::trace);
        logger_->set_error_handler([this](const std::string&) { ++lost_; });
        level_.store(options.level, std::memory_order_relaxed);
    }

    void offer(Level level, std::string_view message, std::string_view body, bool capped) {
        lines_.clear();
        folder_.offer(monotonic_ns(), level, message, body, capped, lines_);
        put();
    }

    void put() {
        static constexpr std::string_view kWords[] = {"debug ", "info ", "warn ", "error "};
        for (const Line& line : lines_) {
            std::string text(kWords[static_cast<std::size_t>(line.level)]);
            text += line.body;
            if (text.size() > kBodyBytesMax) {
                text.resize(kBodyBytesMax - 3);
                text += "...";
            }
            const std::uint64_t lost_before = lost_;
            logger_->log(spdlog::level::info, spdlog::string_view_t(text.data(), text.size()));
            if (lost_ == lost_before) ++written_;
        }
    }

    static constexpr std::uint32_t kRotatedMax = 200;  // twice what the configuration allows

    std::mutex mutex_;
    std::atomic<Level> level_{Level::Info};
    std::unique_ptr<spdlog::logger> logger_;
    std::shared_ptr<PatientStderr> stderr_;
    Folder folder_;
    RateCap cap_;
    std::vector<Line> lines_;
    std::uint64_t written_ = 0;
    std::uint64_t lost_ = 0;
};

[[nodiscard]] State& state() {
    // Never destroyed: other threads and other destructors may still have something to say.
    static State* const kState = new State;  // NOLINT(cppcoreguidelines-owning-memory)
    return *kState;
}

}  // namespace

Result<void> init(const Options& options) {
    return state().init(options);
}
void set_level(Level level) {
    state().set_level(level);
}
bool enabled(Level level) {
    return state().enabled(level);
}
void write(Level level, std::string_view room, std::string_view text, Fields fields) {
    if (enabled(level)) state().write(level, room, text, fields);
}
void plugin_line(Level level,
                 std::string_view source,
                 std::string_view line,
                 std::uint64_t dropped) {
    if (enabled(level)) state().plugin_line(level, source, line, dropped);
}
void flush_folds() {
    state().flush_folds();
}
Stats stats() {
    return state().stats();
}

}  // namespace hf::log
