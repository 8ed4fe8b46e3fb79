#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "abi/layout/jail_spec.hpp"

#include <doctest/doctest.h>

namespace hf::layout {
namespace {

JailSpec full_spec() {
    JailSpec spec;
    spec.name = "storage-local/0";
    spec.profile = "storage-local";
    spec.binary = "/usr/lib/holdfast/storage-local";
    spec.args = {"--kind", "storage"};
    spec.binds = {{"/var/lib/holdfast/store", "/data", true, true}, {"/etc/hosts", "/etc/hosts"}};
    spec.uid = 900007;
    spec.host_pids = true;
    spec.control = true;
    spec.address_space_bytes = 1ULL << 40U;
    spec.cpu_seconds = 3;
    spec.file_bytes = 5'000'000'000ULL;
    spec.open_files = 64;
    return spec;
}

TEST_CASE("a spec arrives as it was sent") {
    const JailSpec spec = full_spec();
    const auto back = decode_jail_spec(encode_jail_spec(spec));
    REQUIRE(back.ok());
    CHECK(back.value() == spec);
}

TEST_CASE("a spec cut at any byte is refused") {
    const Bytes whole = encode_jail_spec(full_spec());
    for (std::size_t size = 0; size < whole.size(); ++size)
        CHECK_FALSE(decode_jail_spec(BytesView(whole).first(size)).ok());
}

TEST_CASE("bytes after the end are refused") {
    Bytes bytes = encode_jail_spec(full_spec());
    bytes.push_back(0);
    CHECK_FALSE(decode_jail_spec(bytes).ok());
}

TEST_CASE("a flag that is neither yes nor no is refused") {
    Bytes bytes = encode_jail_spec(full_spec());
    // The last flag, `control`, lies before three u64 and one u32.
    bytes.at(bytes.size() - 3 * 8 - 4 - 4) = 2;
    const auto back = decode_jail_spec(bytes);
    REQUIRE_FALSE(back.ok());
    CHECK(back.error().message.find("control") != std::string::npos);
}

TEST_CASE("paths that could mean something else are refused") {
    for (const char* path :
         {"", "/", "data", "/data/", "//data", "/data/../etc", "/./data", "/data//x"}) {
        JailSpec spec = full_spec();
        spec.binds[0].target = path;
        CHECK_MESSAGE(!decode_jail_spec(encode_jail_spec(spec)).ok(), path);
        spec = full_spec();
        spec.binary = path;
        CHECK_MESSAGE(!decode_jail_spec(encode_jail_spec(spec)).ok(), path);
    }
}

TEST_CASE("a count beyond its bound is refused before anything is made for it") {
    JailSpec spec = full_spec();
    spec.args.assign(kJailArgsMax + 1, "x");
    CHECK_FALSE(decode_jail_spec(encode_jail_spec(spec)).ok());
    spec = full_spec();
    spec.binds.assign(kJailBindsMax + 1, {"/a", "/b"});
    CHECK_FALSE(decode_jail_spec(encode_jail_spec(spec)).ok());
}

TEST_CASE("a text with a zero byte is refused") {
    JailSpec spec = full_spec();
    spec.args[0] = std::string("a\0b", 3);
    CHECK_FALSE(decode_jail_spec(encode_jail_spec(spec)).ok());
}

TEST_CASE("reports arrive as they were sent, damaged ones are refused") {
    JailReport report;
    report.kind = JailReportKind::Ended;
    report.wait_status = 9;
    report.syscall = "ptrace";
    report.syscall_number = 101;
    const Bytes bytes = encode_jail_report(report);
    const auto back = decode_jail_report(bytes);
    REQUIRE(back.ok());
    CHECK(back.value().kind == JailReportKind::Ended);
    CHECK(back.value().wait_status == 9);
    CHECK(back.value().syscall == "ptrace");
    for (std::size_t size = 0; size < bytes.size(); ++size)
        CHECK_FALSE(decode_jail_report(BytesView(bytes).first(size)).ok());
    Bytes wrong = bytes;
    wrong.at(4) = 9;
    CHECK_FALSE(decode_jail_report(wrong).ok());
}

}  // namespace
}  // namespace hf::layout
