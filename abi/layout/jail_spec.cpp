#include "abi/layout/jail_spec.hpp"

#include <algorithm>
#include <string_view>

namespace hf::layout {
namespace {

// Changes whenever a field does; jail and supervisor are installed together.
constexpr std::uint32_t kSpecMagic = 0x31534A48;    // "HJS1"
constexpr std::uint32_t kReportMagic = 0x31524A48;  // "HJR1"

void put_u64(FlatWriter& out, std::uint64_t value) {
    out.u32(static_cast<std::uint32_t>(value));
    out.u32(static_cast<std::uint32_t>(value >> 32U));
}

void put_flag(FlatWriter& out, bool value) {
    out.u32(value ? 1 : 0);
}

// Reads fields one after the other and remembers the first that was not there or not allowed.
class StrictReader {
public:
    explicit StrictReader(BytesView bytes) : in_(bytes) {}

    std::uint32_t u32(const char* what) {
        std::uint32_t value = 0;
        if (error_.empty() && !in_.u32(value)) miss(what);
        return value;
    }
    std::uint64_t u64(const char* what) {
        const std::uint64_t low = u32(what);
        const std::uint64_t high = u32(what);
        return low | high << 32U;
    }
    bool flag(const char* what) {
        const std::uint32_t value = u32(what);
        if (value > 1) miss(what);
        return value == 1;
    }
    std::uint32_t count(const char* what, std::size_t most) {
        const std::uint32_t value = u32(what);
        if (value > most) {
            miss(what);
            return 0;
        }
        return value;
    }
    std::string text(const char* what, std::size_t most) {
        std::string_view value;
        if (!error_.empty()) return {};
        if (!in_.field(value) || value.size() > most || value.find('\0') != value.npos) {
            miss(what);
            return {};
        }
        return std::string(value);
    }
    [[nodiscard]] std::string end() {
        if (error_.empty() && !in_.done()) error_ = "bytes after the end";
        return error_;
    }

private:
    void miss(const char* what) {
        if (error_.empty()) error_ = std::string(what) + " is missing, too long or out of range";
    }
    FlatReader in_;
    std::string error_;
};

// Absolute, without "", "." or ".." as a part: such a path means the same to whoever reads it.
bool plain_path(std::string_view path) {
    if (path.size() < 2 || path.size() >= kJailPathBytesMax || path.front() != '/') return false;
    if (path.find('\0') != path.npos) return false;
    std::size_t start = 1;
    while (start <= path.size()) {
        const std::size_t end = std::min(path.find('/', start), path.size());
        const std::string_view part = path.substr(start, end - start);
        if (part.empty() || part == "." || part == "..") return false;
        start = end + 1;
    }
    return true;
}

Error refused(const std::string& why) {
    return fail(Code::Invalid, "jail spec: " + why);
}

}  // namespace

Result<void> check_jail_spec(const JailSpec& spec) {
    if (spec.name.empty() || spec.name.size() > kJailNameBytesMax)
        return refused("the name must have 1 to " + std::to_string(kJailNameBytesMax) + " bytes");
    if (spec.profile.empty() || spec.profile.size() > kJailNameBytesMax)
        return refused("the profile is not named");
    if (!plain_path(spec.binary))
        return refused("the binary '" + spec.binary + "' is not a plain absolute path");
    if (spec.args.size() > kJailArgsMax)
        return refused("more than " + std::to_string(kJailArgsMax) + " arguments");
    if (spec.binds.size() > kJailBindsMax)
        return refused("more than " + std::to_string(kJailBindsMax) + " binds");
    for (const std::string& arg : spec.args)
        if (arg.size() > kJailPathBytesMax || arg.find('\0') != arg.npos)
            return refused("an argument is longer than " + std::to_string(kJailPathBytesMax));
    for (const JailBind& bind : spec.binds) {
        if (!plain_path(bind.source))
            return refused("the bind source '" + bind.source + "' is not a plain absolute path");
        if (!plain_path(bind.target))
            return refused("the bind target '" + bind.target + "' is not a plain absolute path");
    }
    if (spec.open_files < 16) return refused("fewer than 16 open files cannot even load libraries");
    if (spec.given_network && (spec.network || !spec.namespaces || spec.user_namespace))
        return refused("a given network namespace is for root, and instead of the host's");
    if (spec.user_namespace && !spec.namespaces)
        return refused("a user namespace without the others makes no sense");
    return {};
}

Bytes encode_jail_spec(const JailSpec& spec) {
    Bytes bytes;
    FlatWriter out(bytes);
    out.u32(kSpecMagic);
    out.field(spec.name);
    out.field(spec.profile);
    out.field(spec.binary);
    out.u32(static_cast<std::uint32_t>(spec.args.size()));
    for (const std::string& arg : spec.args) out.field(arg);
    out.u32(static_cast<std::uint32_t>(spec.binds.size()));
    for (const JailBind& bind : spec.binds) {
        out.field(bind.source);
        out.field(bind.target);
        put_flag(out, bind.writable);
        put_flag(out, bind.owned);
    }
    out.u32(spec.uid);
    put_flag(out, spec.namespaces);
    put_flag(out, spec.user_namespace);
    put_flag(out, spec.network);
    put_flag(out, spec.given_network);
    put_flag(out, spec.host_pids);
    put_flag(out, spec.scratch);
    put_flag(out, spec.control);
    put_u64(out, spec.address_space_bytes);
    put_u64(out, spec.cpu_seconds);
    put_u64(out, spec.file_bytes);
    out.u32(spec.open_files);
    return bytes;
}

Result<JailSpec> decode_jail_spec(BytesView bytes) {
    if (bytes.size() > kJailSpecBytesMax) return refused("larger than its bound");
    StrictReader in(bytes);
    if (in.u32("magic") != kSpecMagic)
        return refused("made by another version; jail and supervisor must be installed together");
    JailSpec spec;
    spec.name = in.text("name", kJailNameBytesMax);
    spec.profile = in.text("profile", kJailNameBytesMax);
    spec.binary = in.text("binary", kJailPathBytesMax);
    const std::uint32_t args = in.count("argument count", kJailArgsMax);
    for (std::uint32_t i = 0; i < args; ++i)
        spec.args.push_back(in.text("argument", kJailPathBytesMax));
    const std::uint32_t binds = in.count("bind count", kJailBindsMax);
    for (std::uint32_t i = 0; i < binds; ++i) {
        JailBind bind;
        bind.source = in.text("bind source", kJailPathBytesMax);
        bind.target = in.text("bind target", kJailPathBytesMax);
        bind.writable = in.flag("bind writable");
        bind.owned = in.flag("bind owned");
        spec.binds.push_back(std::move(bind));
    }
    spec.uid = in.u32("uid");
    spec.namespaces = in.flag("namespaces");
    spec.user_namespace = in.flag("user_namespace");
    spec.network = in.flag("network");
    spec.given_network = in.flag("given_network");
    spec.host_pids = in.flag("host_pids");
    spec.scratch = in.flag("scratch");
    spec.control = in.flag("control");
    spec.address_space_bytes = in.u64("address_space_bytes");
    spec.cpu_seconds = in.u64("cpu_seconds");
    spec.file_bytes = in.u64("file_bytes");
    spec.open_files = in.u32("open_files");
    if (const std::string wrong = in.end(); !wrong.empty()) return refused(wrong);
    HF_TRY(check_jail_spec(spec));
    return spec;
}

Bytes encode_jail_report(const JailReport& report) {
    Bytes bytes;
    FlatWriter out(bytes);
    out.u32(kReportMagic);
    out.u32(static_cast<std::uint32_t>(report.kind));
    out.field(std::string_view(report.text).substr(0, kJailReportBytesMax));
    out.u32(report.wait_status);
    out.field(std::string_view(report.syscall).substr(0, kJailNameBytesMax));
    out.u32(report.syscall_number);
    return bytes;
}

Result<JailReport> decode_jail_report(BytesView bytes) {
    StrictReader in(bytes);
    if (in.u32("magic") != kReportMagic)
        return fail(Code::Invalid, "jail report: made by another version");
    JailReport report;
    const std::uint32_t kind = in.u32("kind");
    report.text = in.text("text", kJailReportBytesMax);
    report.wait_status = in.u32("wait_status");
    report.syscall = in.text("syscall", kJailNameBytesMax);
    report.syscall_number = in.u32("syscall_number");
    if (const std::string wrong = in.end(); !wrong.empty())
        return fail(Code::Invalid, "jail report: " + wrong);
    if (kind < static_cast<std::uint32_t>(JailReportKind::Wall) ||
        kind > static_cast<std::uint32_t>(JailReportKind::Ended))
        return fail(Code::Invalid, "jail report: unknown kind " + std::to_string(kind));
    report.kind = static_cast<JailReportKind>(kind);
    return report;
}

}  // namespace hf::layout
