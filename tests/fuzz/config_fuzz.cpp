// Any bytes as agent.toml: refused with reasons or accepted with every effective value printable; never a crash, never
// both, never neither.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "abi/base/unique_fd.hpp"
#include "agent/config/config.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const hf::UniqueFd fd(::memfd_create("agent.toml", MFD_CLOEXEC));
    if (!fd.valid() || ::write(fd.get(), data, size) != static_cast<ssize_t>(size)) return 0;
    hf::config::Options options;
    options.environment = [](const char*) { return std::nullopt; };
    options.check_files = false;
    const auto checked = hf::config::check("/proc/self/fd/" + std::to_string(fd.get()), options);
    if (checked.config.has_value() != checked.problems.empty() || checked.problems.size() > 20)
        std::abort();
    for (const auto& problem : checked.problems)
        for (const char c : problem.text())
            if (static_cast<unsigned char>(c) < 0x20)
                std::abort();  // what reaches a terminal is clean
    if (checked.config &&
        (show_text(*checked.config).empty() || show_json(*checked.config).empty()))
        std::abort();
    return 0;
}
