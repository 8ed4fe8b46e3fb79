// Starts a plugin binary over a real Channel, without jail and without a loop library, and takes it through its greeting.
// The supervisor's part of a test: it polls the bell and the control socket, nothing else.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/port/channel.hpp"

namespace hf::rig {

// A process that is killed and reaped with its owner.
class Child {
public:
    Child() = default;
    // `control` may be invalid: descriptor 3 is then closed. `error_fd` becomes its standard error unless -1.
    Child(const std::string& binary,
          const std::vector<std::string>& args,
          UniqueFd control,
          int error_fd = -1);
    Child(Child&& other) noexcept;
    Child& operator=(Child&& other) noexcept;
    ~Child();
    void signal(int number) const;
    // Waits for its end; the raw wait status.
    int reap();
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    pid_t pid_ = 0;
};

struct Started {
    std::unique_ptr<port::Channel> channel;
    Child child;
    bool ready = false;
    std::string error;  // of Ready, or why there is none
};

using Handler = std::function<void(const port::Received&)>;

// Blocks until the bell or the control socket is readable, or `timeout_ms` passed. False on time-out.
bool wait_for(port::Channel& channel, int timeout_ms);
// Drains, flushes and waits until `done` or the deadline. False: deadline, or the link's fault in *fault.
bool run_until(port::Channel& channel,
               const Handler& handler,
               const std::function<bool()>& done,
               int timeout_ms,
               std::string* fault = nullptr);

struct Setup {
    std::string policy;
    std::vector<std::pair<std::string, std::string>> settings;
    std::vector<std::pair<std::string, int>> extra;
    int error_fd = -1;
};

Started start(port::SegmentPool& pool,
              const port::ChannelSizes& sizes,
              std::uint64_t generation,
              abi::Kind kind,
              const std::string& binary,
              const std::vector<std::string>& args,
              const Setup& setup = {});

// Everything that is written to `fd` until its last writer is gone.
std::string read_all(int fd);
struct Pipe {
    UniqueFd read;
    UniqueFd write;
};
Pipe make_pipe();

// Request ids that the rig itself uses; tests count from 1 upwards.
inline constexpr std::uint64_t kConfigureId = 1ULL << 62U;

}  // namespace hf::rig
