// The command line and descriptor 3 of a plugin process, up to a Session. For the SDK's own loop and its C face.
#pragma once

#include <memory>

#include "abi/sdk/session.hpp"

namespace hf::sdk {

// Reads the arguments and attaches. Null: it has said why, or did what --help and --version ask; end with `exit_code`.
std::unique_ptr<Session> start_session(Plugin& plugin, int argc, char** argv, int& exit_code);

}  // namespace hf::sdk
