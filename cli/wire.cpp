#include "cli/wire.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "abi/base/clock.hpp"
#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::cli {

namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;

Answer failed(Exit exit, std::string code, std::string message) {
    Answer answer;
    answer.exit = exit;
    answer.code = std::move(code);
    answer.message = std::move(message);
    return answer;
}

Answer protocol(std::string message) {
    return failed(Exit::Unreachable, "protocol", std::move(message));
}

// Milliseconds left for poll, rounded up; 0 when the time is over.
int left_ms(std::int64_t deadline_ns) {
    const std::int64_t left = deadline_ns - monotonic_ns();
    return left <= 0 ? 0 : static_cast<int>((left + kNsPerMs - 1) / kNsPerMs);
}

struct Connected {
    UniqueFd fd;
    int error = 0;
};

// A data directory may be deeper than a socket address is long, so the socket is named through its directory.
Connected connect_to(const std::filesystem::path& socket_path, std::int64_t deadline_ns) {
    Connected out;
    const UniqueFd dir(::open(socket_path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!dir.valid()) {
        out.error = errno;
        return out;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path,
                  sizeof(address.sun_path),
                  "/proc/self/fd/%d/%s",
                  dir.get(),
                  socket_path.filename().c_str());
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) {
        out.error = errno;
        return out;
    }
    // For a unix socket connect() waits only while the node's backlog is full, and this bounds that wait. At least 1 ms:
    // zero would mean for ever.
    const int wait_ms = std::max(1, left_ms(deadline_ns));
    const timeval wait{wait_ms / 1000, (wait_ms % 1000) * 1000};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    // SAFETY: sockaddr_un is what the sockets API wants to be passed as a sockaddr.
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        out.error = errno;
        return out;
    }
    out.fd = std::move(fd);
    return out;
}

Answer not_connected(const std::filesystem::path& socket_path, int error) {
    const std::string at = socket_path.string();
    switch (error) {
        case ENOENT:
        case ENOTDIR:
            return failed(Exit::Unreachable,
                          "unreachable",
                          "no node runs there: there is no socket " + at +
                              " (start holdfastd, or name its data directory)");
        case ECONNREFUSED:
            return failed(Exit::Unreachable,
                          "unreachable",
                          "no node runs there: nobody listens on " + at +
                              " (it is what an ended holdfastd left behind)");
        case EACCES:
        case EPERM:
            return failed(
                Exit::Unreachable,
                "unreachable",
                "not allowed to talk to " + at + ": run this as root or as the node's user");
        case EAGAIN:
            return failed(Exit::Timeout, "timeout", "the node does not take connections on " + at);
        default:
            return failed(Exit::Unreachable,
                          "unreachable",
                          fail_errno(error, "cannot connect to " + at).message);
    }
}

// One line at a time from a socket, within the deadline and the line bound.
class Lines {
public:
    Lines(int fd, std::int64_t deadline_ns) : fd_(fd), deadline_ns_(deadline_ns) {}

    enum class Got { Line, Closed, Late, TooLong };
    Got next(std::string& line) {
        for (;;) {
            const std::size_t end = buffer_.find('\n', scanned_);
            if (end != std::string::npos) {
                if (end + 1 > kLineBytesMax) return Got::TooLong;
                line = buffer_.substr(0, end);
                buffer_.erase(0, end + 1);
                scanned_ = 0;
                return Got::Line;
            }
            scanned_ = buffer_.size();
            if (buffer_.size() >= kLineBytesMax) return Got::TooLong;
            const Got got = read_some();
            if (got != Got::Line) return got;
        }
    }

private:
    Got read_some() {
        const int wait_ms = left_ms(deadline_ns_);
        if (wait_ms == 0) return Got::Late;
        pollfd readable{fd_, POLLIN, 0};
        const int ready = ::poll(&readable, 1, wait_ms);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            return Got::Line;  // looks at the clock again
        if (ready < 0) return Got::Closed;
        std::array<char, 65'536> chunk{};
        const ssize_t count = ::recv(fd_, chunk.data(), chunk.size(), MSG_DONTWAIT);
        if (count > 0) {
            buffer_.append(chunk.data(), static_cast<std::size_t>(count));
            return Got::Line;
        }
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) return Got::Line;
        return Got::Closed;
    }

    int fd_;
    std::int64_t deadline_ns_;
    std::string buffer_;
    std::size_t scanned_ = 0;
};

enum class Written { All, Closed, Late };
Written write_all(int fd, std::string_view bytes, std::int64_t deadline_ns) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) {
            bytes.remove_prefix(static_cast<std::size_t>(count));
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno != EAGAIN) return Written::Closed;
        const int wait_ms = left_ms(deadline_ns);
        if (wait_ms == 0) return Written::Late;
        pollfd writable{fd, POLLOUT, 0};
        ::poll(&writable, 1, wait_ms);
    }
    return Written::All;
}

std::string text_or(const Json& object, const char* key, std::string otherwise) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>()
                                                       : std::move(otherwise);
}

// The final answer in `line`, or nothing when it was progress.
bool understand(const std::string& line, const OnProgress& on_progress, Answer& answer) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) {
        answer = protocol("the answer is not a JSON object; is the other side a holdfastd?");
        return true;
    }
    const auto ok = json.find("ok");
    if (ok == json.end()) {
        const auto progress = json.find("progress");
        if (progress == json.end()) {
            answer = protocol(
                "the answer has neither \"ok\" nor \"progress\"; is the other side a holdfastd?");
            return true;
        }
        if (on_progress) on_progress(*progress);
        return false;
    }
    if (ok->is_boolean() && ok->get<bool>()) {
        const auto result = json.find("result");
        if (result != json.end()) answer.result = *result;
        return true;
    }
    const auto error = json.find("error");
    if (!ok->is_boolean() || error == json.end() || !error->is_object()) {
        answer =
            protocol("the answer says neither yes nor why not; is the other side a holdfastd?");
        return true;
    }
    answer = failed(Exit::No,
                    text_or(*error, "code", "unknown"),
                    text_or(*error, "message", "the node says no without a reason"));
    return true;
}

Answer converse(int fd,
                const std::string& request,
                std::int64_t deadline_ns,
                const OnProgress& on_progress) {
    Answer late = failed(Exit::Timeout,
                         "timeout",
                         "the node did not answer in time; what was asked may still happen "
                         "(--timeout sets the limit)");
    Answer closed = failed(Exit::Unreachable,
                           "unreachable",
                           "the node closed the connection before it answered; what was "
                           "asked may or may not have happened");
    switch (write_all(fd, request, deadline_ns)) {
        case Written::All:
            break;
        case Written::Closed:
            return closed;
        case Written::Late:
            return late;
    }
    Lines lines(fd, deadline_ns);
    std::string line;
    for (std::size_t count = 0; count <= kProgressLinesMax; ++count) {
        switch (lines.next(line)) {
            case Lines::Got::Line:
                break;
            case Lines::Got::Closed:
                return closed;
            case Lines::Got::Late:
                return late;
            case Lines::Got::TooLong:
                return protocol("the answer is longer than 1 MiB");
        }
        Answer answer;
        if (understand(line, on_progress, answer)) return answer;
    }
    return protocol("the node reports progress without end");
}

}  // namespace

std::filesystem::path control_socket(const std::filesystem::path& data) {
    return data / "run" / "control.sock";
}

bool listens(const std::filesystem::path& data) {
    return connect_to(control_socket(data), monotonic_ns()).fd.valid();
}

Answer ask(const std::filesystem::path& data,
           const Json& request,
           std::chrono::milliseconds timeout,
           const OnProgress& on_progress) {
    const std::int64_t deadline_ns = monotonic_ns() + timeout.count() * kNsPerMs;
    // Bytes of the command line that are not UTF-8 are replaced: the node would refuse the whole line.
    const std::string line = request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (line.size() > kLineBytesMax)
        return failed(Exit::Usage, "invalid", "the request is longer than 1 MiB");
    const auto socket_path = control_socket(data);
    const Connected connected = connect_to(socket_path, deadline_ns);
    if (!connected.fd.valid()) return not_connected(socket_path, connected.error);
    return converse(connected.fd.get(), line, deadline_ns, on_progress);
}

}  // namespace hf::cli
