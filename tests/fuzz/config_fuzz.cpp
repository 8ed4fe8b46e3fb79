// Any bytes as agent.toml: refused with reasons or accepted with every effective value printable; never a crash, never
// both, never neither.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "abi/base/unique_fd.hpp"
#include "agent/config/config.hpp"
#include "tests/fuzz/target.hpp"

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return {};
}

void hf::fuzz::take(BytesView input) {
    const hf::UniqueFd fd(::memfd_create("agent.toml", MFD_CLOEXEC));
    if (!fd.valid() ||
        ::write(fd.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size()))
        return;
    hf::config::Options options;
    options.environment = [](const char*) { return std::nullopt; };
    options.check_files = false;
    const auto checked = hf::config::check("/proc/self/fd/" + std::to_string(fd.get()), options);
    must(checked.config.has_value() == checked.problems.empty() && checked.problems.size() <= 20);
    // What reaches a terminal is clean.
    for (const auto& problem : checked.problems)
        for (const char c : problem.text()) must(static_cast<unsigned char>(c) >= 0x20);
    if (checked.config)
        must(!show_text(*checked.config).empty() && !show_json(*checked.config).empty());
}
