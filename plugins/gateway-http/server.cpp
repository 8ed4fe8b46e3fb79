#include "plugins/gateway-http/server.hpp"

#include <fcntl.h>

#include <algorithm>

#include "abi/base/clock.hpp"

namespace hf::gateway {

namespace {

// Connections waiting to be accepted; the kernel cuts it at net.core.somaxconn, 4096 by default.
constexpr int kBacklog = 4096;
// Connections beyond a limit that are told so at the same time; more than that are closed without a word.
constexpr std::size_t kTurnAwayMax = 64;
// Beyond the request's own deadline, which the supervisor answers itself: two loop turns of a busy node.
constexpr std::int64_t kAnswerGraceMs = 250;
// A client that is done reads our end of stream and closes; one that goes on sending renews it.
constexpr std::int64_t kLingerMs = 2000;
// While the process finishes, a busy client's next request comes within this and is still taken.
constexpr std::int64_t kShedIdleMs = 1000;
// Before the end of a shed: time for the last answers to leave.
constexpr std::int64_t kGiveUpMs = 300;
// Counters go out at most this often.
constexpr std::int64_t kCountersMs = 1000;
constexpr std::int64_t kNsPerMs = 1'000'000;

}  // namespace

Server::Server(uv_loop_t& loop,
               const Settings& settings,
               PeerDoor::Facts facts,
               std::unique_ptr<TlsKeys> tls,
               sdk::Context& context)
    : loop_(loop),
      settings_(settings),
      tenant_(facts.tenant),
      tls_(std::move(tls)),
      context_(context),
      requests_(
          settings.requests_open_max, settings.sockets_max, settings.bodies_memory_max, context),
      peers_(std::move(facts)) {
    deadlines_.set_length(Wait::Idle, settings.idle_timeout_ms);
    deadlines_.set_length(Wait::Head, settings.header_timeout_ms);
    deadlines_.set_length(Wait::Body, body_look_ms(settings));
    deadlines_.set_length(Wait::Request, settings.request_timeout_ms + kAnswerGraceMs);
    deadlines_.set_length(Wait::Write, settings.write_timeout_ms);
    deadlines_.set_length(Wait::Linger, kLingerMs);
    deadlines_.set_length(Wait::Shed, kShedIdleMs);
    deadlines_.set_length(Wait::Ping, settings.ping_interval_ms);
    deadlines_.set_length(Wait::Pong, settings.pong_timeout_ms);
    deadlines_.set_length(Wait::Close, settings.close_timeout_ms);
    deadlines_.set_length(Wait::Taken, settings.request_timeout_ms + kAnswerGraceMs);
    head_.fields.reserve(settings.header_count_max);
    (void)uv_timer_init(&loop_, &timer_);
    timer_.data = this;
}

Result<void> Server::listen(const std::vector<Listening>& sockets) {
    for (const auto& [fd, door] : sockets) {
        const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (own < 0) return fail_errno(errno, "cannot duplicate a listening socket");
        listeners_.push_back(std::make_unique<Listener>());
        Listener& listener = *listeners_.back();
        listener.server = this;
        listener.door = door;
        listener.tcp.data = &listener;
        (void)uv_tcp_init(&loop_, &listener.tcp);
        // SAFETY: libuv's handles are cast to their base by design.
        auto* const stream = reinterpret_cast<uv_stream_t*>(&listener.tcp);
        int error = uv_tcp_open(&listener.tcp, own);
        if (error == 0)
            error = uv_listen(stream, kBacklog, [](uv_stream_t* handle, int status) {
                auto* const self = static_cast<Listener*>(handle->data);
                self->server->on_connection(*self, status);
            });
        if (error != 0)
            return fail_errno(-error, "cannot listen on a socket passed by the supervisor");
    }
    return {};
}

void Server::on_connection(Listener& listener, int status) {
    context_.set_current(0);  // it works, should the supervisor wonder
    // Out of descriptors: libuv has taken the client off the queue and closed it.
    if (status < 0) return counters_.add(Count::ConnectionsRefused);
    if (connections_.size() >= settings_.connections_max) {
        // A silent connection may be closed at any time; better that than to turn somebody away.
        if (Deadlines::Item* const oldest = deadlines_.oldest(Wait::Idle); oldest != nullptr)
            static_cast<Connection*>(oldest)->close();
    }
    const bool room = connections_.size() < settings_.connections_max;
    auto* const connection = new Connection(*this, listener.door);  // deleted in closed()
    connection->index = connections_.size();
    connections_.push_back(connection);
    counters_.add(Count::ConnectionsOpened);
    connection->open(reinterpret_cast<uv_stream_t*>(&listener.tcp));
    if (connection->is_closed()) return;
    if (settings_.connections_per_client_max != 0) {
        connection->is_counted = true;
        ++clients_[connection->client_key()];
    }
    const std::string_view broken = broken_limit(*connection, room);
    if (broken.empty()) return;
    if (turned_away_ >= kTurnAwayMax) return connection->close();
    connection->is_turned_away = true;
    ++turned_away_;
    connection->turn_away(broken);
}

std::string_view Server::broken_limit(const Connection& connection, bool room) {
    if (!room) {
        counters_.add(Count::ConnectionsRefused);
        return "connections_max is reached";
    }
    if (!connection.is_counted ||
        clients_[connection.client_key()] <= settings_.connections_per_client_max)
        return {};
    counters_.add(Count::ClientsRefused);
    return "connections_per_client_max is reached";
}

void Server::closing(Connection& connection) {
    counters_.add(Count::ConnectionsClosed);
    if (connection.is_turned_away) --turned_away_;
    if (connection.is_counted) {
        const auto found = clients_.find(connection.client_key());
        if (--found->second == 0) clients_.erase(found);
    }
    connections_.back()->index = connection.index;
    connections_[connection.index] = connections_.back();
    connections_.pop_back();
    ++closing_;
    if (connection.to_be_flushed) {
        connection.to_be_flushed = false;
        to_flush_.erase(std::find(to_flush_.begin(), to_flush_.end(), &connection));
    }
}

void Server::closed(Connection* connection) {
    --closing_;
    delete connection;
}

void Server::answer(const sdk::Message& message) {
    if (!requests_.answer(message)) counters_.add(Count::LateAnswers);
}

void Server::socket_send(const abi::SocketSend& send) {
    const auto found = sockets_.find(send.connection());
    if (found == sockets_.end()) return counters_.add(Count::SocketMessagesDropped);
    found->second->send(
        send.binary(),
        send.data() == nullptr ? BytesView() : BytesView(send.data()->data(), send.data()->size()));
}

void Server::socket_close(const abi::CloseSocket& close) {
    const auto found = sockets_.find(close.connection());
    if (found == sockets_.end()) return;
    found->second->close(
        close.code(),
        close.reason() == nullptr ? std::string_view() : close.reason()->string_view(),
        Count::SocketsByActor);
}

void Server::flush_later(Connection& connection) {
    if (connection.to_be_flushed || connection.is_closed()) return;
    connection.to_be_flushed = true;
    to_flush_.push_back(&connection);
}

void Server::batch_done() {
    requests_.retry();
    while (!to_flush_.empty()) {
        Connection& connection = *to_flush_.back();
        to_flush_.pop_back();
        connection.to_be_flushed = false;
        connection.flush();
    }
}

void Server::shed(std::int64_t deadline_ns) {
    if (shedding_) return;
    shedding_ = true;
    if (deadline_ns != 0) give_up_ns_ = deadline_ns - kGiveUpMs * kNsPerMs;
    // Closes our descriptor only: the socket belongs to others too, so it is never shut down.
    for (const auto& listener : listeners_)
        uv_close(reinterpret_cast<uv_handle_t*>(&listener->tcp), nullptr);
    // A socket's last words may end it, which takes its connection out of the table: this walks over a copy, as below.
    const std::vector<Connection*> open = connections_;
    for (Connection* const connection : open) connection->shed();
}

void Server::give_up() {
    give_up_ns_ = kNever;
    // Closing takes a connection out of the table, so this walks over a copy.
    const std::vector<Connection*> open = connections_;
    for (Connection* const connection : open) connection->give_up();
}

// ---- time

std::int64_t Server::next_due_ns() const {
    std::int64_t next = std::min(deadlines_.next_ns(), give_up_ns_);
    if (counters_.changed()) next = std::min(next, told_ns_ + kCountersMs * kNsPerMs);
    return next;
}

void Server::before_block() {
    const std::int64_t next = next_due_ns();
    if (next == kNever) {
        if (armed_ns_ != kNever) (void)uv_timer_stop(&timer_);
        armed_ns_ = kNever;
        return;
    }
    // An armed timer that is too early fires once for nothing; moving it with each request would cost more.
    if (next >= armed_ns_) return;
    const std::int64_t left_ms = std::max<std::int64_t>(0, next - monotonic_ns()) / kNsPerMs + 1;
    uv_update_time(&loop_);
    (void)uv_timer_start(
        &timer_,
        [](uv_timer_t* timer) { static_cast<Server*>(timer->data)->on_timer(); },
        static_cast<std::uint64_t>(left_ms),
        0);
    armed_ns_ = next;
}

void Server::on_timer() {
    armed_ns_ = kNever;
    const std::int64_t now = monotonic_ns();
    while (Deadlines::Item* const item = deadlines_.take_due(now))
        item->time_is_up(item->waits_for());
    if (give_up_ns_ <= now) give_up();
    if (counters_.changed() && told_ns_ + kCountersMs * kNsPerMs <= now) tell_counters(now);
    batch_done();
}

void Server::tell_counters(std::int64_t now) {
    told_ns_ = now;
    flatbuffers::FlatBufferBuilder& builder = context_.builder();
    std::array<flatbuffers::Offset<abi::Counter>, kCounts> values;
    for (std::size_t i = 0; i < kCounts; ++i)
        values[i] =
            abi::CreateCounter(builder,
                               builder.CreateString(kCountNames[i].data(), kCountNames[i].size()),
                               counters_.value(i));
    const auto list = builder.CreateVector(values.data(), values.size());
    // No room: they are told a second later, with more.
    if (context_.notify(abi::CreateCounters(builder, list))) counters_.told();
}

}  // namespace hf::gateway
