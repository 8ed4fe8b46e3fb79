#include "agent/control/control.hpp"

#include <csignal>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/control/client.hpp"
#include "agent/control/socket_path.hpp"

namespace hf::control {

namespace {

constexpr int kBacklog = 16;  // as many as may be connected

// Writing to a client that went away must be an error, not the end of the daemon; libuv leaves that to the process.
void ignore_broken_pipes() {
    struct sigaction now {};
    if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = SIG_IGN;
        static_cast<void>(::sigaction(SIGPIPE, &now, nullptr));
    }
}

class SocketServer final : public Server, private Owner {
public:
    SocketServer(std::filesystem::path path, FileId id) : path_(std::move(path)), id_(id) {}
    SocketServer(const SocketServer&) = delete;
    SocketServer& operator=(const SocketServer&) = delete;
    ~SocketServer() override { shut(); }

    Result<void> start(uv_loop_t* loop, UniqueFd fd) {
        listener_ =
            new uv_pipe_t{};  // NOLINT(cppcoreguidelines-owning-memory): libuv needs it until its close callback
        uv_pipe_init(loop, listener_, 0);
        listener_->data = this;
        int error = uv_pipe_open(listener_, fd.get());
        if (error == 0) {
            static_cast<void>(fd.release());  // libuv closes it
            error = uv_listen(stream(), kBacklog, [](uv_stream_t* from, int status) {
                if (status == 0 && from->data != nullptr)
                    static_cast<SocketServer*>(from->data)->accept();
            });
        }
        if (error != 0)
            return fail_errno(-error, "cannot listen on the control socket " + path_.string());
        return {};
    }

    void on(std::string op, Handler handler) override {
        handlers_[std::move(op)] = std::move(handler);
    }
    void close() override { shut(); }
    [[nodiscard]] std::size_t clients() const override { return clients_.size(); }

private:
    // SAFETY: uv_pipe_t begins with uv_stream_t by libuv's contract.
    [[nodiscard]] uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(listener_); }

    void accept() {
        const auto client = std::make_shared<Client>(static_cast<Owner*>(this));
        if (!client->open(listener_->loop, stream())) return client->close();
        if (!peer_may_speak(client->fd()))
            return client->dismiss(fail(
                Code::Refused, "only root and the daemon's own user may use the control socket"));
        if (clients_.size() >= kClientsMax && !make_room())
            return client->dismiss(fail(Code::Busy, "too many operators at once; try again"));
        clients_.push_back(client);
        client->start_reading();
    }

    // Closes the client that has been idle for longest; false when all wait for answers.
    [[nodiscard]] bool make_room() {
        std::shared_ptr<Client> oldest;
        for (const auto& client : clients_)
            if (!client->busy() && (!oldest || client->last_used() < oldest->last_used()))
                oldest = client;
        if (oldest) oldest->close();
        return oldest != nullptr;
    }

    void serve(const nlohmann::json& request, const std::string& op, Responder responder) override {
        const auto found = handlers_.find(op);
        if (found == handlers_.end()) {
            std::string known;
            for (const auto& [name, handler] : handlers_)
                known += (known.empty() ? "" : ", ") + name;
            return responder.fail(
                hf::fail(Code::Invalid, "unknown op '" + op.substr(0, 64) + "'; known: " + known));
        }
        const Handler handler = found->second;  // stays whole if it registers or closes
        try {
            handler(request, responder);
        } catch (const nlohmann::json::exception& error) {
            // A member of the wrong type: the request is the operator's, the mistake too.
            responder.fail(hf::fail(Code::Invalid,
                                    "a member of the request is missing or of the wrong type: " +
                                        std::string(error.what())));
        }
    }

    void gone(Client& client) override {
        clients_.remove_if(
            [&](const std::shared_ptr<Client>& one) { return one.get() == &client; });
    }

    void shut() {
        if (listener_ == nullptr) return;
        remove_socket(path_, id_);
        listener_->data = nullptr;
        // SAFETY: uv_pipe_t begins with uv_handle_t by libuv's contract.
        uv_close(reinterpret_cast<uv_handle_t*>(listener_), [](uv_handle_t* handle) {
            delete reinterpret_cast<uv_pipe_t*>(
                handle);  // NOLINT(cppcoreguidelines-owning-memory): see start()
        });
        listener_ = nullptr;
        for (const auto& client : std::exchange(clients_, {})) client->stop();
    }

    std::filesystem::path path_;
    FileId id_;
    uv_pipe_t* listener_ = nullptr;
    std::map<std::string, Handler> handlers_;
    std::list<std::shared_ptr<Client>> clients_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(uv_loop_t* loop, const std::filesystem::path& path) {
    ignore_broken_pipes();
    HF_ASSIGN(BoundSocket bound, bind_socket(path));
    auto server = std::make_unique<SocketServer>(path, bound.id);
    HF_TRY(server->start(loop, std::move(bound.fd)));
    return std::unique_ptr<Server>(std::move(server));
}

}  // namespace hf::control
