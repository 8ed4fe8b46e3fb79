// A rule of the protocol was seen broken: ends the run of this seed.
#pragma once

#include <stdexcept>
#include <string>

namespace hf::sim {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] inline void broken(const std::string& what) {
    throw Failure(what);
}

}  // namespace hf::sim
