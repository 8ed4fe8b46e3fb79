// The walls of one instance, in the order they are built: namespaces and a root of its own, then limits and identity,
// then, in the child, Landlock. A wall this machine cannot give is reported as a sentence; one that the spec needs and
// that fails is an error, and nothing is started.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/layout/jail_spec.hpp"
#include "jail/profiles.hpp"

namespace hf::jail {

using SayMissing = std::function<void(const std::string& sentence)>;

// Where the plugin's binary is after build_root (walls_root.cpp).
[[nodiscard]] std::string inner_binary(const layout::JailSpec& spec);

// Mount, ipc, uts and network namespaces and the root: a tmpfs with read-only system libraries, the binary, the binds
// and a minimal /dev. Without namespaces: only checks that the binds need none.
[[nodiscard]] Result<void> build_root(const layout::JailSpec& spec,
                                      const Profile& profile,
                                      const SayMissing& missing);

// uid and gid, no capability in any set, no_new_privs (walls_identity.cpp). The last change of credentials.
[[nodiscard]] Result<void> take_identity(const layout::JailSpec& spec, const SayMissing& missing);

// rlimits of the calling process, for the child before exec.
[[nodiscard]] Result<void> set_limits(const layout::JailSpec& spec);

// Landlock over what the mounts show anyway: a second wall, and no signals beyond the jail (walls_landlock.cpp).
// Prepared in the jail, where a missing wall can be reported; applied in the child.
class Landlock {
public:
    Landlock() = default;
    Landlock(Landlock&& other) noexcept;
    Landlock& operator=(Landlock&&) = delete;
    ~Landlock();
    static Result<Landlock> prepare(const layout::JailSpec& spec, const SayMissing& missing);
    [[nodiscard]] Result<void> apply() const;

private:
    int ruleset_ = -1;
};

}  // namespace hf::jail
