// The command line: reads it, asks the node or the program beside us, prints, and answers an exit code. The one place that
// names CLI11 and the one that catches its exceptions is app.cpp.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/surroundings.hpp"

namespace hf::cli {

// `words` are the arguments without the program's name. What was asked for goes to `out`, everything else to `err`; with
// --json `out` gets exactly one line with one JSON value, failures included.
int run(const std::vector<std::string>& words,
        const Surroundings& around,
        std::ostream& out,
        std::ostream& err);

}  // namespace hf::cli
