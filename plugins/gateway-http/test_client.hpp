// A client of tests: raw bytes out, one answer at a time in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "abi/base/unique_fd.hpp"

namespace hf::gateway {

struct Answer {
    int status = 0;  // 0: the connection ended first, -1: a reset, -2: nothing came within 10 s
    std::map<std::string, std::string> fields;  // names in lower case
    std::string body;
};

class TestClient {
public:
    // `receive_bytes`: a small receive buffer, 0: the system's.
    explicit TestClient(std::uint16_t port, int receive_bytes = 0);
    // False: the peer has closed or reset.
    bool send(std::string_view bytes);
    // `without_body`: the answer to HEAD.
    Answer answer(bool without_body = false);
    // What the peer's side takes within a second; less than all: it does not read.
    std::size_t send_some(std::string_view bytes);
    // send and answer.
    Answer ask(std::string_view bytes) {
        send(bytes);
        return answer();
    }
    // The next bytes, whatever they are, appended to `into`. As recv when the stream ends first: 0, -1, or -2 after 10 s.
    long take(std::size_t bytes, std::string& into);
    // Nothing more comes but the end of the stream.
    bool is_ended();
    void shut_sending();
    // Closes so that the peer sees a reset.
    void reset();
    void close() { fd_.reset(); }

private:
    // Reads more into buffer_; the result of recv, -2 after 10 s.
    long fill();

    UniqueFd fd_;
    std::string buffer_;
};

// "GET <path> HTTP/1.1" with Host and the given lines.
std::string get(std::string_view path, std::string_view fields = {});
std::string post(std::string_view path, std::string_view body, std::string_view fields = {});

}  // namespace hf::gateway
