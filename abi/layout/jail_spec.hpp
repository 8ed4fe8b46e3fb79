// What the supervisor tells the jail and what the jail tells back, as bytes. Encoder and decoder for both sides.
//
// The spec lies in a sealed memfd at descriptor kSpecFd; the report is a SOCK_SEQPACKET socket at kReportFd, one message
// a packet. Both sides come from one build, yet the decoders are strict: a wrong version, a flag that is neither 0 nor 1,
// a path that is not plain and absolute, a count beyond its bound or one byte too many is refused with a sentence.
// If the supervisor dies, the report socket hangs up; if the jail dies, the supervisor reads what was sent and an end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::layout {

// Descriptors the jail is started with, besides 0 (/dev/null), 1 and 2 (pipes).
inline constexpr int kControlFd = 3;  // handed on to the plugin; closed when the spec says so
inline constexpr int kSpecFd = 4;
inline constexpr int kReportFd = 5;
inline constexpr int kNetworkFd = 6;  // an empty network namespace; only when the spec says so

// A name such as "runtime-wasm/0" or a profile; operators type them.
inline constexpr std::size_t kJailNameBytesMax = 128;
// PATH_MAX of Linux; longer ones cannot be opened in one call anyway.
inline constexpr std::size_t kJailPathBytesMax = 4096;
// The builder's compiler call is the longest: about 20 flags; twice that and some.
inline constexpr std::size_t kJailArgsMax = 64;
// The data directory, the modules, a policy's file: a handful each. Every bind costs about 30 us at start.
inline constexpr std::size_t kJailBindsMax = 64;
// All of it: far above 64 binds of usual paths, and it bounds what the jail reads before it trusts anything.
inline constexpr std::size_t kJailSpecBytesMax = 256 * 1024;
// A sentence to an operator. Longer ones are cut by the sender.
inline constexpr std::size_t kJailReportBytesMax = 2048;

struct JailBind {
    std::string source;  // on the host, absolute
    std::string target;  // inside, absolute
    bool writable = false;
    bool owned = false;  // the source, a directory, and the files in it get the instance's uid
    friend bool operator==(const JailBind&, const JailBind&) = default;
};

struct JailSpec {
    std::string name;
    std::string profile;
    std::string binary;
    std::vector<std::string> args;  // without argv[0]
    std::vector<JailBind> binds;
    std::uint32_t uid = 0;        // uid and gid to run under; 0: stay who we are
    bool namespaces = true;       // false: this machine gives none; see `missing walls`
    bool user_namespace = false;  // we are already inside one that maps only our own uid
    bool network = false;
    bool given_network = false;  // join the empty one at kNetworkFd instead of making one
    bool host_pids = false;
    bool scratch = false;
    bool control = false;                   // kControlFd is open and belongs to the plugin
    std::uint64_t address_space_bytes = 0;  // 0: as inherited, for this and the next two
    std::uint64_t cpu_seconds = 0;
    std::uint64_t file_bytes = 0;
    std::uint32_t open_files = 256;
    friend bool operator==(const JailSpec&, const JailSpec&) = default;
};

// Refuses a spec that breaks a bound or a rule; the decoder calls it too.
[[nodiscard]] Result<void> check_jail_spec(const JailSpec& spec);
[[nodiscard]] Bytes encode_jail_spec(const JailSpec& spec);
[[nodiscard]] Result<JailSpec> decode_jail_spec(BytesView bytes);

enum class JailReportKind : std::uint32_t {
    Wall = 1,    // text: a wall that is missing, as a sentence
    Born = 2,    // the plugin's process exists; its pidfd travels with the packet
    Failed = 3,  // text: why the plugin could not be started
    Ended = 4,   // wait_status, and the syscall when seccomp ended it
};

struct JailReport {
    JailReportKind kind = JailReportKind::Wall;
    std::string text;
    std::uint32_t wait_status = 0;  // as from waitpid
    std::string syscall;            // "ptrace", "32-bit ptrace"; empty otherwise
    std::uint32_t syscall_number = 0;
};

[[nodiscard]] Bytes encode_jail_report(const JailReport& report);
[[nodiscard]] Result<JailReport> decode_jail_report(BytesView bytes);

}  // namespace hf::layout
