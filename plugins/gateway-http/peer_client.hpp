// Calls to other nodes' gateways: PeerCall in, one signed request out, PeerReplied back. Responsible for that each is sent once
// at most, for what is certain about one that was not answered, and for the bounds: calls that are open, nodes, connections to
// each, time, and the room for large answers. Loop thread only.
//
// If the other node dies in the middle the outcome is Unknown; if this process dies its calls are answered by nobody, and the
// supervisor decides (replay: core).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "abi/sdk/plugin.hpp"
#include "plugins/gateway-http/counters.hpp"
#include "plugins/gateway-http/peer_request.hpp"
#include "plugins/gateway-http/requests.hpp"
#include "plugins/http-client/http.hpp"
#include "plugins/http-client/loop.hpp"

namespace hf::gateway {

class PeerClient {
public:
    // As many as a gateway has requests of clients open.
    static constexpr std::size_t kOpenMax = 1024;
    // Nodes that connections are kept to: a larger cluster closes the longest unused ones.
    static constexpr std::size_t kPeersMax = 64;

    struct Options {
        std::string secret;
        std::string tenant;
        std::string app;
        std::size_t connections_max = 16;  // to each node
        std::int64_t connect_timeout_ms = 1'000;
    };

    // Opens what later may not be opened: before the second filter. All must outlive it.
    static Result<std::unique_ptr<PeerClient>> create(Options options,
                                                      Requests& requests,
                                                      Counters& counters,
                                                      sdk::Context& context);
    ~PeerClient();
    PeerClient(const PeerClient&) = delete;
    PeerClient& operator=(const PeerClient&) = delete;

    // Readable when step() has something to do.
    [[nodiscard]] int fd() const { return loop_->fd(); }
    void step() { loop_->step(); }

    // A PeerCall. Answered once, from here or from step().
    void call(const sdk::Message& message);

private:
    struct Peer {
        std::unique_ptr<web::Http> http;
        std::size_t open = 0;
        std::uint64_t used = 0;  // the number of the last call to it
    };
    struct Call;

    PeerClient(Options options, Requests& requests, Counters& counters, sdk::Context& context);
    [[nodiscard]] Result<Peer*> peer_of(const std::string& url);
    void hash_some(Call& call);
    void send(Call& call, const std::string& body_sha256);
    [[nodiscard]] bool keep(Call& call, std::string_view piece);
    [[nodiscard]] bool keep_in_file(Call& call, BytesView piece);
    void time_is_up(std::uint64_t id);
    void answered(std::uint64_t id, web::HttpAnswer& answer);
    void reply(Call& call, const web::HttpAnswer& answer);
    void say(std::uint64_t req_id, abi::PeerOutcome outcome, std::string_view why);
    void end(std::uint64_t id);

    Options options_;
    Requests& requests_;
    Counters& counters_;
    sdk::Context& context_;
    std::unique_ptr<web::Loop> loop_;
    std::unordered_map<std::string, Peer> peers_;                    // by URL
    std::unordered_map<std::uint64_t, std::unique_ptr<Call>> open_;  // by the supervisor's number
    std::uint64_t calls_ = 0;
};

}  // namespace hf::gateway
