// Large bodies: sealed memory files whose descriptors travel over a link's control socket, each before the record that
// names its token. Both sides of a link use this; neither maps, reads or believes what it has not judged.
//
// If the sender dies a descriptor that was sent stays good: the file is sealed, so nobody can change or shrink it. If the
// receiver dies the kernel closes what it had and what lay unread in its socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::ring {

// A record that names a large body and the descriptor that goes with it. `fd` belongs to whoever made this.
struct Carried {
    std::uint64_t token = 0;  // 0: the record carries none
    std::uint64_t bytes = 0;
    int fd = -1;
};

// An empty memory file to be written from its start with write(), close-on-exec. `name` shows in /proc only.
[[nodiscard]] Result<UniqueFd> make_body(const char* name);
// Writes all of it at the file's end.
[[nodiscard]] Result<void> append_body(int fd, const void* bytes, std::size_t size);
// No byte of it changes from here on.
[[nodiscard]] Result<void> seal_body(int fd);
// A memory file of these bytes, sealed.
[[nodiscard]] Result<UniqueFd> sealed_body(const char* name, BytesView bytes);
// Reads exactly `size` bytes from `at` on. False: there are not as many.
[[nodiscard]] bool read_body(int fd, void* to, std::size_t size, std::uint64_t at);

// Null when `fd` is a memory file of `bytes` bytes that nobody can change any more, else the rule it breaks. Cannot block,
// whatever the descriptor is.
[[nodiscard]] const char* judge_body(int fd, std::uint64_t bytes);

enum class BodySent : std::uint8_t {
    Yes,
    Full,  // the reader has not taken earlier ones: later
    Gone,  // there is no reader any more
};
// Never blocks unless `wait` says so. `carried.fd` stays the caller's.
[[nodiscard]] BodySent send_body(int socket, const Carried& carried, bool wait = false);

// What came on a control socket and was not named by a record yet.
class BodyInbox {
public:
    BodyInbox() = default;
    // Closes what nobody named: anything may be among it, and no close of it waits.
    ~BodyInbox();
    BodyInbox(const BodyInbox&) = delete;
    BodyInbox& operator=(const BodyInbox&) = delete;
    // Takes the descriptor of `token`, reading from the socket what came with it, and judges it. Null and `out`, or the
    // rule that the sender broke; `out` is then invalid.
    [[nodiscard]] const char* take(int socket,
                                   std::uint64_t token,
                                   std::uint64_t bytes,
                                   UniqueFd& out);
    [[nodiscard]] std::size_t unnamed() const { return waiting_.size(); }

private:
    const char* read_one(int socket);

    std::map<std::uint64_t, UniqueFd> waiting_;
    std::uint64_t last_token_ = 0;
};

// Closes everything that lies unread in the socket, so that no close of it waits: for the end of a link.
void discard_bodies(int socket);

}  // namespace hf::ring
