// Watches the plugin from its start to its end: receives the filter's listener, lets the first execve through, ends the
// plugin at a forbidden call, reaps whatever becomes our child, and leaves nothing running.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::jail {

struct Ending {
    std::string failure;  // it never started: why
    int wait_status = 0;
    std::string syscall;  // forbidden, as layout::syscall_name says it
    std::uint32_t syscall_number = 0;
};

class Warden {
public:
    // `start_socket` is our end of the pair whose other end the child holds until exec. `proc` is an O_PATH descriptor
    // of a /proc in our pid namespace, or invalid: needed only to find leftovers without a pid namespace.
    Warden(pid_t plugin, UniqueFd start_socket, UniqueFd signals, UniqueFd proc, bool exec_allowed);

    // Blocks until the plugin has ended and nothing it started is left.
    [[nodiscard]] Result<Ending> watch();

private:
    void start_readable();
    void listener_readable();
    void reap();
    void end_plugin() const;
    void end_leftovers();

    pid_t plugin_;
    UniqueFd start_;
    UniqueFd signals_;
    UniqueFd proc_;
    UniqueFd listener_;
    bool exec_pending_;  // the plugin's own execve has not been seen yet
    bool ended_ = false;
    Ending ending_;
};

}  // namespace hf::jail
