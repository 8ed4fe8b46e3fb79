// The client's half of the control socket: one JSON object per line each way (docs/operations). Responsible for the
// bounds and for telling apart "says no", "is not there" and "does not answer"; not for what the operations mean.
// When the node dies in the middle the answer is Unreachable, and whether the request took effect is not known.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/exit_codes.hpp"

namespace hf::cli {

// Key order is kept, so that generic output reads as the node wrote it.
using Json = nlohmann::ordered_json;

// One request, progress line or answer, line feed included; the node keeps to the same number.
inline constexpr std::size_t kLineBytesMax = 1U << 20U;
// A swap reports a few lines per stage; thousands mean that the other side is not a node of ours.
inline constexpr std::size_t kProgressLinesMax = 10'000;

struct Answer {
    Exit exit = Exit::Ok;
    Json result;          // when exit is Ok
    std::string code;     // else: one word, the node's or "unreachable", "timeout", "protocol"
    std::string message;  // and a sentence
};

using OnProgress = std::function<void(const Json& progress)>;

// Sends one request to the node of a data directory and waits for its one final answer. Never throws, never blocks
// beyond `timeout`.
[[nodiscard]] Answer ask(const std::filesystem::path& data,
                         const Json& request,
                         std::chrono::milliseconds timeout,
                         const OnProgress& on_progress = {});

// <data>/run/control.sock
[[nodiscard]] std::filesystem::path control_socket(const std::filesystem::path& data);
// Whether somebody listens there now.
[[nodiscard]] bool listens(const std::filesystem::path& data);

}  // namespace hf::cli
