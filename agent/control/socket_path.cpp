#include "agent/control/socket_path.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace hf::control {

namespace {

// An address for the file. A path longer than 107 bytes goes through the descriptor of its directory.
struct Address {
    sockaddr_un name{};
    UniqueFd directory;
    [[nodiscard]] const sockaddr* get() const {
        // SAFETY: sockaddr_un is made to be passed as sockaddr.
        return reinterpret_cast<const sockaddr*>(&name);
    }
};

Result<Address> address_of(const std::filesystem::path& path) {
    Address out;
    out.name.sun_family = AF_UNIX;
    std::string text = path.string();
    if (text.size() >= sizeof(out.name.sun_path)) {
        out.directory.reset(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!out.directory.valid())
            return fail_errno(errno, "cannot open the directory " + path.parent_path().string());
        text =
            "/proc/self/fd/" + std::to_string(out.directory.get()) + '/' + path.filename().string();
        if (text.size() >= sizeof(out.name.sun_path))
            return fail(Code::Invalid,
                        "the socket's file name " + path.filename().string() + " is too long");
    }
    std::memcpy(out.name.sun_path, text.c_str(), text.size() + 1);
    return out;
}

// Clears the way when what lies there is a socket of ours that nobody listens on.
Result<void> clear_leftover(const std::filesystem::path& path, const Address& address) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) {
        if (errno == ENOENT) return {};
        return fail_errno(errno, "cannot look at the control socket " + path.string());
    }
    if (!S_ISSOCK(facts.st_mode))
        return fail(
            Code::Refused,
            path.string() + " is not a socket, so it is not ours; move it away and start again");
    if (facts.st_uid != ::geteuid())
        return fail(Code::Refused,
                    "the socket " + path.string() + " belongs to user " +
                        std::to_string(facts.st_uid) +
                        ", so it is not ours; move it away and start again");
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.valid()) return fail_errno(errno, "cannot make a socket");
    if (::connect(probe.get(), address.get(), sizeof(address.name)) == 0 || errno != ECONNREFUSED)
        return fail(Code::Exists, "another process listens on the control socket " + path.string());
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
        return fail_errno(errno, "cannot replace the old control socket " + path.string());
    return {};
}

}  // namespace

Result<BoundSocket> bind_socket(const std::filesystem::path& path) {
    HF_ASSIGN(const Address address, address_of(path));
    HF_TRY(clear_leftover(path, address));
    BoundSocket out;
    out.fd.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!out.fd.valid()) return fail_errno(errno, "cannot make a socket");
    if (::bind(out.fd.get(), address.get(), sizeof(address.name)) != 0)
        return fail_errno(errno, "cannot bind the control socket " + path.string());
    struct stat facts {};
    // Nobody can connect before listen(), so nobody slips in under the old mode.
    if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::lstat(path.c_str(), &facts) != 0)
        return fail_errno(errno, "cannot set the mode of the control socket " + path.string());
    out.id = {facts.st_dev, facts.st_ino};
    return out;
}

void remove_socket(const std::filesystem::path& path, const FileId& id) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) == 0 && facts.st_dev == id.device && facts.st_ino == id.inode)
        static_cast<void>(::unlink(path.c_str()));
}

bool peer_may_speak(int fd) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == 0 || peer.uid == ::geteuid();
}

}  // namespace hf::control
