// What a peer may send for a large body, and what is made of it.
#include "abi/ring/bodies.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "abi/layout/attach.hpp"

using namespace hf;
using namespace hf::ring;

namespace {

constexpr std::string_view kText = "a body that is large, let us say";

UniqueFd sealed(std::string_view text = kText) {
    auto file = make_body("hf-test-body");
    REQUIRE(file.ok());
    REQUIRE(append_body(file->get(), text.data(), text.size()).ok());
    REQUIRE(seal_body(file->get()).ok());
    return std::move(file).value();
}

std::string judged(int fd, std::uint64_t bytes = kText.size()) {
    const char* rule = judge_body(fd, bytes);
    return rule == nullptr ? "" : rule;
}

struct Sockets {
    Sockets() {
        std::array<int, 2> ends{-1, -1};
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
        sender = UniqueFd(ends[0]);
        reader = UniqueFd(ends[1]);
    }
    void send(std::uint64_t token, int fd) {
        REQUIRE(send_body(sender.get(), {token, kText.size(), fd}) == BodySent::Yes);
    }
    std::string take(std::uint64_t token, std::uint64_t bytes = kText.size()) {
        const char* rule = inbox.take(reader.get(), token, bytes, got);
        return rule == nullptr ? "" : rule;
    }
    UniqueFd sender;
    UniqueFd reader;
    BodyInbox inbox;
    UniqueFd got;
};

std::size_t open_files() {
    std::size_t count = 0;
    for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
}

}  // namespace

TEST_CASE("a sealed memory file of the declared size is a body, and nobody changes it") {
    const UniqueFd file = sealed();
    CHECK(judged(file.get()) == "");
    CHECK(::pwrite(file.get(), "x", 1, 0) < 0);
    CHECK(::ftruncate(file.get(), 1) != 0);
    CHECK(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
    std::string text(kText.size(), '\0');
    CHECK(read_body(file.get(), text.data(), text.size(), 0));
    CHECK(text == kText);
    CHECK_FALSE(read_body(file.get(), text.data(), text.size(), 1));
}

TEST_CASE("what is not sealed against everything is no body") {
    constexpr std::array kAll{F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_SEAL};
    for (const int missing : kAll) {
        auto file = make_body("hf-test-body");
        REQUIRE(append_body(file->get(), kText.data(), kText.size()).ok());
        int seals = 0;
        for (const int seal : kAll) seals |= seal == missing ? 0 : seal;
        REQUIRE(::fcntl(file->get(), F_ADD_SEALS, seals) == 0);
        CHECK(judged(file->get()) == "a large body that is not sealed");
    }
}

TEST_CASE("another size than declared, none, or beyond every limit is no body") {
    const UniqueFd file = sealed();
    CHECK(judged(file.get(), kText.size() - 1) == "a large body of another size than declared");
    CHECK(judged(file.get(), kText.size() + 1) == "a large body of another size than declared");
    CHECK(judged(file.get(), 0) == "a large body of no size that is allowed");
    CHECK(judged(file.get(), kLargeBodyBytesMax + 1) == "a large body of no size that is allowed");
}

TEST_CASE("other descriptors are no bodies") {
    std::array<int, 2> ends{-1, -1};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const UniqueFd read(ends[0]);
    const UniqueFd write(ends[1]);
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const UniqueFd directory(::open("/", O_RDONLY | O_CLOEXEC));
    const UniqueFd plain(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    for (const UniqueFd* one : {&read, &write, &null, &directory, &plain, &socket})
        CHECK(judged(one->get()) == "a large body that is no memory file");
}

TEST_CASE("a descriptor arrives with its token, once") {
    Sockets sockets;
    {
        const UniqueFd file = sealed();
        sockets.send(1, file.get());
        sockets.send(2, file.get());
        sockets.send(5, file.get());
    }
    CHECK(sockets.take(1) == "");
    CHECK(sockets.got.valid());
    // Another one before it is kept until it is named.
    CHECK(sockets.take(5) == "");
    CHECK(sockets.inbox.unnamed() == 1);
    CHECK(sockets.take(2) == "");
    CHECK(sockets.inbox.unnamed() == 0);
    CHECK(sockets.take(2) == "a large body's token without its descriptor");
}

TEST_CASE("tokens that were never sent, or twice, are broken rules") {
    Sockets sockets;
    const UniqueFd file = sealed();
    CHECK(sockets.take(1) == "a large body's token without its descriptor");
    CHECK_FALSE(sockets.got.valid());
    sockets.send(3, file.get());
    sockets.send(3, file.get());
    CHECK(sockets.take(3) == "");
    CHECK(sockets.take(4) == "a large body's token used twice");
}

TEST_CASE("what breaks a rule is closed") {
    const std::size_t before = open_files();
    {
        Sockets sockets;
        auto file = make_body("hf-test-body");
        REQUIRE(append_body(file->get(), kText.data(), kText.size()).ok());
        sockets.send(1, file->get());
        CHECK(sockets.take(1) == "a large body that is not sealed");
        CHECK_FALSE(sockets.got.valid());
        // The junk of a sender: no descriptor, a wrong magic, more than one.
        REQUIRE(::send(sockets.sender.get(), "junk", 4, 0) == 4);
        CHECK(sockets.take(2) == "a message on the control socket that is none");
        for (std::uint64_t token = 2; token < 40; ++token) sockets.send(token, file->get());
        CHECK(sockets.take(100) == "more large bodies than records that name them");
        discard_bodies(sockets.reader.get());
        CHECK(sockets.take(100) == "a large body's token without its descriptor");
    }
    CHECK(open_files() == before);
}

TEST_CASE("a descriptor that nobody named is closed without waiting for its peer") {
    // A connection with bytes that its peer does not take, whose last close waits for them as long as its owner liked.
    UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    // SAFETY: a sockaddr_in is made to be seen as a sockaddr.
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(listener.get(), any, size) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), any, &size) == 0);
    UniqueFd lingers(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(lingers.get(), any, size) == 0);
    const std::array<char, 65536> bytes{};
    while (::send(lingers.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    constexpr int kSeconds = 20;
    const linger wait{1, kSeconds};
    REQUIRE(::setsockopt(lingers.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)) == 0);
    Sockets sockets;
    sockets.send(1, lingers.get());
    sockets.send(2, sealed().get());
    lingers.reset();  // not the last of it: that is the inbox's
    std::int64_t begun = 0;
    {
        BodyInbox inbox;
        REQUIRE(inbox.take(sockets.reader.get(), 2, kText.size(), sockets.got) == nullptr);
        CHECK(inbox.unnamed() == 1);
        begun = monotonic_ns();
    }
    CHECK(monotonic_ns() - begun < std::int64_t{kSeconds} * 500'000'000);
}

TEST_CASE("a reader without descriptors says that it is its own want") {
    Sockets sockets;
    const UniqueFd file = sealed();
    sockets.send(1, file.get());
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{0, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const std::string said = sockets.take(1);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(said == "a large body for which the reader had no descriptor left");
}

TEST_CASE("a sender never waits for a reader, and hears when there is none") {
    Sockets sockets;
    const UniqueFd file = sealed();
    std::uint64_t token = 0;
    BodySent sent = BodySent::Yes;
    while (sent == BodySent::Yes && token < 100'000)
        sent = send_body(sockets.sender.get(), {++token, kText.size(), file.get()});
    CHECK(sent == BodySent::Full);
    CHECK(sockets.take(1) == "");
    CHECK(send_body(sockets.sender.get(), {token, kText.size(), file.get()}) == BodySent::Yes);
    sockets.reader.reset();
    CHECK(send_body(sockets.sender.get(), {token + 1, 1, file.get()}) == BodySent::Gone);
}
