// One connection to the control socket: lines in, lines out, one request at a time. Private to this room.
//
// Lifetime: a Client owns itself (`self_`) from open() until libuv has closed its handle; the server holds it as well while
// it counts. A Responder holds only a weak pointer.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "agent/control/control.hpp"

namespace hf::control {

class Client;

// What a Client asks of its server.
class Owner {
public:
    virtual ~Owner() = default;
    // Serves one request; the responder answers now or later.
    virtual void serve(const nlohmann::json& request,
                       const std::string& op,
                       Responder responder) = 0;
    // The client is of no use any more; drops it.
    virtual void gone(Client& client) = 0;
};

struct Responder::State {
    std::weak_ptr<Client> client;
    nlohmann::json id;  // null: none was given
    bool answered = false;
    std::function<void()> on_gone;
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();
};

class Client : public std::enable_shared_from_this<Client> {
public:
    explicit Client(Owner* owner) : owner_(owner) {}
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    virtual ~Client() = default;

    // Accepts from the listener. The handle must be closed with close() afterwards, whatever the outcome.
    [[nodiscard]] bool open(uv_loop_t* loop, uv_stream_t* listener);
    [[nodiscard]] int fd() const;
    void start_reading();
    // Says one last thing and closes when it is out.
    void dismiss(const Error& error);
    void close();
    // The server is gone: answers an open request with that and closes.
    void stop();

    [[nodiscard]] bool busy() const { return current_.lock() != nullptr; }
    [[nodiscard]] std::uint64_t last_used() const { return last_used_; }

    // From Responder.
    void send(const nlohmann::json& line);
    void finish(const Responder::State& state);

private:
    static void on_alloc(uv_handle_t* handle, std::size_t suggested, uv_buf_t* buffer);
    static void on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer);
    void take(std::string_view bytes);
    void serve_lines();
    void serve_line(std::string_view line);
    void end_of_input();
    void put(std::string text);

    Owner* owner_;
    std::shared_ptr<Client> self_;
    uv_pipe_t pipe_{};
    std::string in_;
    std::size_t scanned_ = 0;  // bytes of in_ known to hold no line feed
    std::size_t backlog_ = 0;  // bytes handed to libuv and not yet out
    std::uint64_t last_used_ = 0;
    std::weak_ptr<Responder::State> current_;  // the open request
    bool serving_ = false;                     // inside serve_lines
    bool reading_ = false;
    bool input_ended_ = false;
    bool dismissed_ = false;  // closes once the backlog is out
    bool closing_ = false;
};

}  // namespace hf::control
