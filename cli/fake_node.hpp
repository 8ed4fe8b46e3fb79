// For the tests of this folder: a directory of their own, a thread that answers like a node, and the command line run inside
// this process.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "abi/base/unique_fd.hpp"
#include "cli/app.hpp"
#include "cli/wire.hpp"

namespace hf::cli::test {

namespace fs = std::filesystem;

class TempDir {
public:
    TempDir() {
        std::string name = (fs::temp_directory_path() / "holdfast-cli-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir() { fs::remove_all(path); }
    fs::path path;
};

// Listens like a node. The script gets each request and writes whatever bytes it likes; the connection ends after it.
class FakeNode {
public:
    using Script = std::function<void(int fd, const std::string& request)>;

    explicit FakeNode(const fs::path& data, Script script) : script_(std::move(script)) {
        fs::create_directories(data / "run");
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string path = (data / "run" / "control.sock").string();
        REQUIRE(path.size() < sizeof(address.sun_path));
        std::strcpy(address.sun_path, path.c_str());
        listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        // SAFETY: sockaddr_un is what the sockets API wants to be passed as a sockaddr.
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
                0);
        REQUIRE(::listen(listener_.get(), 8) == 0);
        std::array<int, 2> ends{};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
        stop_read_.reset(ends[0]);
        stop_write_.reset(ends[1]);
        thread_ = std::thread([this] { serve(); });
    }
    FakeNode(const FakeNode&) = delete;
    FakeNode& operator=(const FakeNode&) = delete;
    ~FakeNode() {
        stop_write_.reset();
        thread_.join();
    }

    // What was asked so far, in order; connections without a line are not counted.
    std::vector<Json> requests() {
        const std::lock_guard guard(mutex_);
        return requests_;
    }
    // Blocks until the client hung up or the node is stopped.
    void wait_for_hangup(int fd) {
        std::array<pollfd, 2> both{pollfd{fd, POLLRDHUP, 0}, pollfd{stop_read_.get(), POLLIN, 0}};
        ::poll(both.data(), both.size(), 60'000);
    }

private:
    void serve() {
        for (;;) {
            std::array<pollfd, 2> both{pollfd{listener_.get(), POLLIN, 0},
                                       pollfd{stop_read_.get(), POLLIN, 0}};
            ::poll(both.data(), both.size(), -1);
            if (both[1].revents != 0) return;
            const hf::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            std::string line;
            char c = 0;
            while (::recv(client.get(), &c, 1, 0) == 1 && c != '\n') line += c;
            if (line.empty()) continue;  // somebody only looked whether we listen
            {
                const std::lock_guard guard(mutex_);
                requests_.push_back(Json::parse(line));
            }
            script_(client.get(), line);
        }
    }

    Script script_;
    hf::UniqueFd listener_;
    hf::UniqueFd stop_read_;
    hf::UniqueFd stop_write_;
    std::thread thread_;
    std::mutex mutex_;
    std::vector<Json> requests_;
};

inline void say(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) return;
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

inline FakeNode::Script answers(const std::string& bytes) {
    return [bytes](int fd, const std::string&) { say(fd, bytes); };
}

struct Ran {
    int exit = -1;
    std::string out;
    std::string err;
};

inline Ran run(const TempDir& dir, std::vector<std::string> words) {
    hf::cli::Surroundings around;
    around.executable_dir = dir.path / "bin";
    around.working_dir = dir.path;
    around.data_variable = dir.path.string();
    around.system_data = dir.path / "no-such-data";
    around.system_config = dir.path / "system.toml";
    std::ostringstream out;
    std::ostringstream err;
    Ran ran;
    ran.exit = hf::cli::run(words, around, out, err);
    ran.out = out.str();
    ran.err = err.str();
    return ran;
}

inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

inline void program(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    fs::permissions(path, fs::perms::owner_all);
}

inline std::string content(const fs::path& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
}

}  // namespace hf::cli::test
