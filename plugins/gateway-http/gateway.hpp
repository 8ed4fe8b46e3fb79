// The plugin itself: joins the link to the supervisor and the server in one libuv loop.
// If the supervisor dies the SDK ends this process; if this process dies its clients are reset, its open requests are
// answered by nobody, and the sockets live on with the supervisor and the successor.
#pragma once

#include <uv.h>

#include <memory>

#include "abi/sdk/plugin.hpp"
#include "plugins/gateway-http/peer_client.hpp"
#include "plugins/gateway-http/server.hpp"

namespace hf::gateway {

class Gateway final : public sdk::Plugin {
public:
    Gateway();
    // Runs until the driver says so; the process's exit code.
    int run(sdk::Driver& driver);

    [[nodiscard]] sdk::Identity identity() const override;
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override;
    void handle(const sdk::Message& message) override;
    void batch_done() override;
    void shed_started(std::int64_t deadline_ns) override;
    bool shed_done() override;

private:
    Result<void> open_peers(const Settings& settings,
                            const PeerDoor::Facts& facts,
                            sdk::Context& context);
    void call_peer(const sdk::Message& message);
    void before_block();
    void step();

    uv_loop_t loop_{};
    uv_poll_t link_{};
    uv_prepare_t prepare_{};
    uv_check_t check_{};
    uv_idle_t busy_{};  // active: the loop looks at its descriptors and does not block
    uv_timer_t shed_end_{};
    bool more_ = false;  // the link has more, before_block said
    bool shedding_ = false;
    sdk::Driver* driver_ = nullptr;
    sdk::Context* context_ = nullptr;
    std::unique_ptr<Server> server_;  // from configure on
    uv_poll_t peers_poll_{};
    std::unique_ptr<PeerClient> peers_;  // null: there is no secret
};

}  // namespace hf::gateway
