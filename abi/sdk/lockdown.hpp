// The second, narrower seccomp filter that a plugin lays on itself when its start is over (design 5).
// Applied by the SDK after configure() and before Ready. A call outside the list does not run: it is named in the
// instance's region ("seccomp: <syscall>") and the process ends.
#pragma once

#include "abi/base/result.hpp"
#include "envelope_generated.h"

namespace hf::sdk {

// `kind` selects the profile; `profile` may name a variant within a kind ("runtime-wasm").
// `report` is where the forbidden syscall's number is stored before the end (may be null).
Result<void> lock_down(abi::Kind kind, const char* profile, volatile unsigned* report);

}  // namespace hf::sdk
