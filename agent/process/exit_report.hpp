// Puts together how a process ended from what the jail said and from how the jail itself ended.
#pragma once

#include "agent/process/spawner.hpp"

namespace hf::process {

// Exit code of a plugin whose second filter stopped a call; its last stderr line then says "seccomp: <call>".
inline constexpr int kExitForbidden = 159;

// Fills exit_code or signal from a status as waitpid gives it.
void take_wait_status(ExitReport& report, int status);
// Names the call from the stderr tail when the exit code says that the second filter stopped one.
void take_second_filter(ExitReport& report);

}  // namespace hf::process
