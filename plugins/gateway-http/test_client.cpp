#include "plugins/gateway-http/test_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "abi/base/check.hpp"

namespace hf::gateway {

TestClient::TestClient(std::uint16_t port, int receive_bytes)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{10, 0};
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (receive_bytes != 0)
        (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // SAFETY: connect takes any address by its common head.
    HF_CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
             "a listening socket takes connections");
}

bool TestClient::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

long TestClient::fill() {
    std::array<char, 65536> piece{};
    const ssize_t got = ::recv(fd_.get(), piece.data(), piece.size(), 0);
    if (got > 0) buffer_.append(piece.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno == EAGAIN) return -2;
    return got;
}

std::size_t TestClient::send_some(std::string_view bytes) {
    constexpr int kPatienceMs = 1000;
    std::size_t sent = 0;
    while (sent < bytes.size()) {
        pollfd room{fd_.get(), POLLOUT, 0};
        if (::poll(&room, 1, kPatienceMs) != 1) break;
        const ssize_t now = ::send(
            fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (now < 0 && errno == EAGAIN) continue;
        if (now <= 0) break;
        sent += static_cast<std::size_t>(now);
    }
    return sent;
}

long TestClient::take(std::size_t bytes, std::string& into) {
    while (buffer_.size() < bytes)
        if (const long got = fill(); got <= 0) return got;
    into.append(buffer_, 0, bytes);
    buffer_.erase(0, bytes);
    return static_cast<long>(bytes);
}

Answer TestClient::answer(bool without_body) {
    Answer answer;
    std::size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
        if (const long got = fill(); got <= 0) {
            answer.status = static_cast<int>(got);
            return answer;
        }
    const std::string head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    HF_CHECK(head.starts_with("HTTP/1.1 "), "an answer begins with its version");
    answer.status = std::atoi(head.c_str() + 9);
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
        const std::size_t line_end = head.find("\r\n", at);
        const std::string line = head.substr(at, line_end - at);
        std::string name = line.substr(0, line.find(": "));
        for (char& c : name)
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
        HF_CHECK(answer.fields.emplace(name, line.substr(line.find(": ") + 2)).second,
                 "no field comes twice");
        at = line_end + 2;
    }
    if (without_body || !answer.fields.contains("content-length")) return answer;
    const auto size = static_cast<std::size_t>(std::atoll(answer.fields["content-length"].c_str()));
    while (buffer_.size() < size)
        if (const long got = fill(); got <= 0) {
            answer.status = static_cast<int>(got);
            return answer;
        }
    answer.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return answer;
}

bool TestClient::is_ended() {
    return buffer_.empty() && fill() == 0;
}

void TestClient::shut_sending() {
    (void)::shutdown(fd_.get(), SHUT_WR);
}

void TestClient::reset() {
    const linger now{1, 0};
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    fd_.reset();
}

std::string get(std::string_view path, std::string_view fields) {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n";
}

std::string post(std::string_view path, std::string_view body, std::string_view fields) {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
           std::string(fields) + "\r\n" + std::string(body);
}

}  // namespace hf::gateway
