// What libFuzzer calls, the same in every target: each includes this once and defines the two functions below.
#pragma once

#include "tests/fuzz/feed.hpp"

namespace hf::fuzz {

// Judges one input; a broken rule ends the process (must).
void take(BytesView input);
// Inputs to start from, written by --seeds=DIR; none: run.py starts from nothing.
std::vector<Bytes> good_inputs();

}  // namespace hf::fuzz

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    hf::fuzz::seeds_if_asked(*argc, *argv, hf::fuzz::good_inputs);
    return 0;
}

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    hf::fuzz::take({data, size});
    return 0;
}
