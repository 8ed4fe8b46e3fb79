// The operator's socket: one JSON object per line, answered by one or more lines. Responsible for who may speak (the
// kernel's word on the peer: root or our own user), for framing and for every bound; not for what the operations mean.
//
//   -> {"op": "swap", "id": 7, ...}                 `id` is optional and is given back with every line of the answer
//   <- {"id": 7, "progress": {...}}                 none or more
//   <- {"id": 7, "ok": true, "result": {...}}       exactly one of these two
//   <- {"id": 7, "ok": false, "error": {"code": "not_found", "message": "..."}}
//
// A client's requests are served one after the other. A client that goes away turns its Responder deaf, nothing more. When
// the daemon dies the socket file stays behind; the next one replaces it if nobody listens on it. Loop thread only.
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "abi/base/result.hpp"

namespace hf::control {

// A request or an answer, line feed included. 1 MiB is the documented bound; a `status` of 64 instances is below 64 KiB.
inline constexpr std::size_t kLineBytesMax = 1U << 20U;
// Connections at once. A CLI holds one for the time of a command; at the bound the longest idle one makes room.
inline constexpr std::size_t kClientsMax = 16;
// Unread answers of one client: four of the longest lines, then it is cut off.
inline constexpr std::size_t kBacklogBytesMax = 4 * kLineBytesMax;

// The word for a code on the wire: "invalid", "not_found", "exists", "busy", "refused", "peer_gone", "io", "corrupt",
// "unavailable", "timeout".
[[nodiscard]] std::string_view code_name(Code code);

// Answers one request, at once or later; copies share it. Safe after the client or the server is gone (it does nothing
// then). When the last copy is dropped without a final answer, the client hears an error.
class Responder {
public:
    struct State;
    explicit Responder(std::shared_ptr<State> state) : state_(std::move(state)) {}
    void progress(const nlohmann::json& value) const;
    void done(const nlohmann::json& result) const;
    void fail(const Error& error) const;
    // False once the client went away or the final answer was given.
    [[nodiscard]] bool open() const;
    // Called once if the client goes away before the final answer; replaces an earlier callback. Never from within this.
    void on_gone(std::function<void()> fn) const;

private:
    std::shared_ptr<State> state_;
};

// The request is valid for the time of the call.
using Handler = std::function<void(const nlohmann::json& request, Responder responder)>;

class Server {
public:
    // Binds `path` (mode 0600, its directory exists and is ours) and listens. A leftover of our own that nobody listens on
    // is replaced. Anything else at that path, a file, a symlink, another user's socket, is left alone and named in the
    // failure; so is a live listener (Exists). Never blocks. `path` may be longer than a socket address.
    static Result<std::unique_ptr<Server>> listen(uv_loop_t* loop,
                                                  const std::filesystem::path& path);
    virtual ~Server() =
        default;  // closes; needs the loop to run once more so that its handles are freed

    // Registers an operation. A request with another `op` is answered with an error that names the nearest.
    virtual void on(std::string op, Handler handler) = 0;
    // Stops listening, tells open requests "the daemon is stopping", closes every client, removes the socket file.
    virtual void close() = 0;
    [[nodiscard]] virtual std::size_t clients() const = 0;
};

}  // namespace hf::control
