// The launcher of one plugin, from the spec at descriptor 4 to the report at descriptor 5.
//
// Order: read the spec; own session, namespaces and root; uid, capabilities, no_new_privs; arm pdeathsig and check that
// the supervisor is still there; fork the plugin, which lays its limits, Landlock and seccomp and becomes the binary.
// The jail stays as its parent (pid 1 of the new pid namespace), reaps, names what seccomp stopped, reports, exits.
//
// If the supervisor dies, the kernel kills the jail; if the jail dies, the kernel kills the plugin: with the pid
// namespace everything in it, without one by pdeathsig, which is enough because such profiles cannot fork.
#pragma once

namespace hf::jail {

// Returns the exit code of the program. `allow_unfiltered` lets the profile "unfiltered" through, which has no seccomp
// filter: for tests that must show that an attack works without it. The installed program passes false.
int run_jail(bool allow_unfiltered);

}  // namespace hf::jail
