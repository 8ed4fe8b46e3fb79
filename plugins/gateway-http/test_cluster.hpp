// For tests of calls between nodes: a secret in a file, options of a node, and another node that does what a test says.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "abi/base/unique_fd.hpp"
#include "plugins/gateway-http/test_supervisor.hpp"

namespace hf::gateway {

inline constexpr std::string_view kTestSecret = "a secret of the tests, of 36 letters";

class SecretFile {
public:
    explicit SecretFile(std::string_view secret = kTestSecret) {
        const UniqueFd file(::mkstemp(path_.data()));
        REQUIRE(file.valid());
        const std::string text = std::string(secret) + "\n";
        REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    ~SecretFile() { (void)::unlink(path_.c_str()); }
    SecretFile(const SecretFile&) = delete;
    SecretFile& operator=(const SecretFile&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_ = "/tmp/hf-test-secret-XXXXXX";
};

inline TestSupervisor::Options node_options(
    const std::string& node,
    const SecretFile& secret,
    std::vector<std::pair<std::string, std::string>> settings = {}) {
    TestSupervisor::Options out;
    out.binary = HF_GATEWAY_HTTP;
    out.node = node;
    out.settings = std::move(settings);
    out.settings.emplace_back("peer_secret_file", secret.path());
    return out;
}

inline std::string at(std::uint16_t port) {
    return "127.0.0.1:" + std::to_string(port);
}

// The event of a client's request.
inline Bytes request_event(std::string_view method,
                           std::string_view url,
                           const std::vector<std::pair<std::string, std::string>>& headers,
                           std::string_view body) {
    Bytes out;
    FlatWriter writer(out);
    writer.field(method);
    writer.field(url);
    writer.u32(static_cast<std::uint32_t>(headers.size()));
    for (const auto& [name, value] : headers) {
        writer.field(std::string_view(name));
        writer.field(std::string_view(value));
    }
    writer.field(body);
    return out;
}

// Another node's gateway, by hand. Every wait ends after 10 s, with a failure.
class FakePeer {
public:
    FakePeer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        // SAFETY: the socket calls take any address by its common head.
        auto* const generic = reinterpret_cast<sockaddr*>(&address);
        REQUIRE(::bind(listener_.get(), generic, size) == 0);
        REQUIRE(::listen(listener_.get(), 64) == 0);
        REQUIRE(::getsockname(listener_.get(), generic, &size) == 0);
        port_ = ntohs(address.sin_port);
    }
    [[nodiscard]] std::string address() const { return at(port_); }
    // Nobody listens there any more.
    void refuse() { listener_.reset(); }
    // True: somebody has connected and was not let in yet.
    [[nodiscard]] bool knocked(int within_ms = 0) const {
        pollfd look{listener_.get(), POLLIN, 0};
        return ::poll(&look, 1, within_ms) == 1;
    }
    // Lets the next one in.
    void accept() {
        REQUIRE(knocked(10'000));
        client_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        REQUIRE(client_.valid());
        const timeval patience{10, 0};
        (void)::setsockopt(client_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        kept_.clear();
    }
    // The next request, whole: head and body as they came.
    std::string take() {
        std::size_t end = 0;
        while ((end = kept_.find("\r\n\r\n")) == std::string::npos) fill();
        std::size_t length = 0;
        if (const std::size_t field = kept_.find("Content-Length: "); field < end)
            length = static_cast<std::size_t>(std::atoll(kept_.c_str() + field + 16));
        while (kept_.size() < end + 4 + length) fill();
        std::string out = kept_.substr(0, end + 4 + length);
        kept_.erase(0, out.size());
        return out;
    }
    void say(std::string_view bytes) {
        REQUIRE(::send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()));
    }
    void close() { client_.reset(); }
    // Nobody has sent anything more: who connected has closed without a word.
    [[nodiscard]] bool hears_nothing() {
        while (knocked()) {
            accept();
            char byte = 0;
            if (::recv(client_.get(), &byte, 1, 0) != 0) return false;
        }
        return true;
    }

private:
    void fill() {
        std::array<char, 65536> piece{};
        const ssize_t got = ::recv(client_.get(), piece.data(), piece.size(), 0);
        REQUIRE(got > 0);
        kept_.append(piece.data(), static_cast<std::size_t>(got));
    }

    UniqueFd listener_;
    UniqueFd client_;
    std::uint16_t port_ = 0;
    std::string kept_;
};

}  // namespace hf::gateway
