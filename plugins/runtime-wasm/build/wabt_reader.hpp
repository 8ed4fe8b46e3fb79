// The one set of reader options and features: what wasm2c can translate and we let through.
#pragma once

#include <wabt/binary-reader.h>
#include <wabt/feature.h>

#include <string>

namespace hf::wasm {

inline wabt::Features features() {
    wabt::Features
        features;  // MVP, mutable globals, sign extension, saturating floats, multi-value, bulk memory
    features.disable_simd();  // wasm2c aborts on it
    return features;
}

inline wabt::ReadBinaryOptions reader_options() {
    // The name section stays unread: its names would end up in C. Broken custom sections are not our business.
    return {features(),
            nullptr,
            /*read_debug_names=*/false,
            /*stop_on_first_error=*/true,
            /*fail_on_custom_section_error=*/false};
}

// A library message as one sentence of ours.
inline std::string reader_sentence(const std::string& message) {
    std::string line = message.substr(0, message.find('\n'));
    if (line.size() > 200) line.resize(200);
    for (char& c : line)
        if (c < 0x20 || c > 0x7e) c = '?';
    if (line.find("0xfd") != std::string::npos) line += " (SIMD is not supported)";
    if (line.find("0xfe") != std::string::npos) line += " (threads are not supported)";
    if (line.find("0x12") != std::string::npos || line.find("0x13") != std::string::npos)
        line += " (tail calls are not supported)";
    return "not a valid module: " + (line.empty() ? std::string("no reason given") : line);
}

}  // namespace hf::wasm
