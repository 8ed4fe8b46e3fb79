#include "abi/ring/bodies.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "abi/base/limits.hpp"
#include "abi/layout/attach.hpp"
#include "abi/ring/descriptors.hpp"

namespace hf::ring {

namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL =
    0x0008U;  // Linux 6.3; older kernels refuse the flag with EINVAL
#endif

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
// Descriptors sent and not named yet. A sender sends one and writes its record at once, so that an honest one has none
// waiting but this one; the rest is room for one that sends a few ahead.
constexpr std::size_t kUnnamedMax = 16;
// Messages that may lie unread at the end of a link: what a socket's buffer holds of the smallest, several times over.
constexpr int kDiscardMax = 4096;
// Descriptors that one message of somebody who breaks the rules may bring; those beyond are closed by the kernel.
constexpr std::size_t kFdsSeen = 4;

// The last close of a socket may wait for its peer, as long as its owner liked; that of a memory file does not.
void close_now(UniqueFd fd) {
    const linger none{};
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

struct Received {
    Arrived arrived;
    layout::BodyMessage message{};
};

Received receive(int socket) {
    Received out;
    // SAFETY: plain data, judged after it came.
    auto* const bytes = reinterpret_cast<std::uint8_t*>(&out.message);
    out.arrived = receive_descriptors(socket, {bytes, sizeof(out.message)}, kFdsSeen, MSG_DONTWAIT);
    return out;
}

void close_all(std::vector<UniqueFd>& fds) {
    for (UniqueFd& fd : fds) close_now(std::move(fd));
}

}  // namespace

Result<UniqueFd> make_body(const char* name) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
    if (!fd.valid() && errno == EINVAL)
        fd.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return fail_errno(errno, "cannot make a memory file for a large body");
    return fd;
}

Result<void> append_body(int fd, const void* bytes, std::size_t size) {
    const char* at = static_cast<const char*>(bytes);
    while (size > 0) {
        const ssize_t done = ::write(fd, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return fail_errno(errno, "cannot keep a large body in memory");
        at += done;
        size -= static_cast<std::size_t>(done);
    }
    return {};
}

Result<void> seal_body(int fd) {
    if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0) return fail_errno(errno, "cannot seal a large body");
    return {};
}

Result<UniqueFd> sealed_body(const char* name, BytesView bytes) {
    HF_ASSIGN(UniqueFd file, make_body(name));
    HF_TRY(append_body(file.get(), bytes.data(), bytes.size()));
    HF_TRY(seal_body(file.get()));
    return file;
}

bool read_body(int fd, void* to, std::size_t size, std::uint64_t at) {
    char* out = static_cast<char*>(to);
    while (size > 0) {
        const ssize_t got = ::pread(fd, out, size, static_cast<off_t>(at));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        out += got;
        at += static_cast<std::uint64_t>(got);
        size -= static_cast<std::size_t>(got);
    }
    return true;
}

const char* judge_body(int fd, std::uint64_t bytes) {
    if (bytes == 0 || bytes > kLargeBodyBytesMax) return "a large body of no size that is allowed";
    // First: only a memory file answers this, and what answers it has no driver behind it that could make anybody wait.
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0) return "a large body that is no memory file";
    if ((seals & kSeals) != kSeals) return "a large body that is not sealed";
    // The place in the file is of no use to anybody: it is read by pread, and not written any more.
    if (static_cast<std::uint64_t>(::lseek(fd, 0, SEEK_END)) != bytes)
        return "a large body of another size than declared";
    return nullptr;
}

BodySent send_body(int socket, const Carried& carried, bool wait) {
    const layout::BodyMessage message{layout::kBodyMagic, carried.token};
    // SAFETY: plain data seen as bytes.
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&message);
    switch (send_descriptors(
        socket, {bytes, sizeof(message)}, {&carried.fd, 1}, wait ? 0 : MSG_DONTWAIT)) {
        case 0:
            return BodySent::Yes;
        case EAGAIN:
        case ENOBUFS:
        case ENOMEM:
        // As many descriptors of this user are on their way as it may have open.
        case ETOOMANYREFS:
            return BodySent::Full;
        default:
            return BodySent::Gone;
    }
}

BodyInbox::~BodyInbox() {
    for (auto& [token, fd] : waiting_) close_now(std::move(fd));
}

const char* BodyInbox::read_one(int socket) {
    auto [arrived, message] = receive(socket);
    if (arrived.got <= 0) return "a large body's token without its descriptor";
    // The kernel leaves out what this process has no number for; a sender that does so on purpose ends the same way.
    if (arrived.cut && arrived.fds.empty())
        return "a large body for which the reader had no descriptor left";
    if (arrived.got != sizeof(message) || arrived.cut || arrived.fds.size() != 1 ||
        message.magic != layout::kBodyMagic) {
        close_all(arrived.fds);
        return "a message on the control socket that is none";
    }
    const std::uint64_t token = message.token;
    if (token <= last_token_ || waiting_.size() >= kUnnamedMax) {
        const bool twice = token <= last_token_;
        close_all(arrived.fds);
        return twice ? "a large body's token used twice"
                     : "more large bodies than records that name them";
    }
    last_token_ = token;
    waiting_.emplace(token, std::move(arrived.fds.front()));
    return nullptr;
}

const char* BodyInbox::take(int socket, std::uint64_t token, std::uint64_t bytes, UniqueFd& out) {
    auto found = waiting_.find(token);
    while (found == waiting_.end()) {
        if (const char* broken = read_one(socket)) return broken;
        found = waiting_.find(token);
    }
    UniqueFd fd = std::move(found->second);
    waiting_.erase(found);
    const char* broken = judge_body(fd.get(), bytes);
    if (broken != nullptr)
        close_now(std::move(fd));
    else
        out = std::move(fd);
    return broken;
}

void discard_bodies(int socket) {
    for (int i = 0; i < kDiscardMax; ++i) {
        Arrived arrived = receive(socket).arrived;
        if (arrived.got <= 0 && arrived.fds.empty()) return;
        close_all(arrived.fds);
    }
}

}  // namespace hf::ring
