// What the actors of TestSupervisor do with WebSockets. A text of a client of `chat` that begins with "!" is an order:
//   !close <code> <reason>   CloseSocket
//   !refuse <code> <text>    the message is not taken
//   !flood <count> <bytes>   so many binary messages
//   !garbage                 a text that is not UTF-8
//   !empty                   a text without a byte
#include <algorithm>
#include <sstream>

#include "abi/base/check.hpp"
#include "plugins/gateway-http/test_supervisor.hpp"

namespace hf::gateway {

namespace {

std::string rest_of(std::istringstream& words) {
    std::string rest;
    std::getline(words >> std::ws, rest);
    return rest;
}

}  // namespace

void TestSupervisor::handle_opened(std::uint64_t id, const abi::SocketOpened& opened) {
    const std::string class_name = opened.class_name()->str();
    const std::string name = opened.name()->str();
    const BytesView event{opened.event()->data(), opened.event()->size()};
    std::string_view body;
    bool accepted = class_name == "chat" || class_name == "slow" || class_name == "choose" ||
                    class_name == "extra";
    {
        const std::lock_guard lock(mutex_);
        seen_.opened = describe_event(event, body);
        seen_.sockets += accepted ? 1 : 0;
        if (class_name == "late") {
            late_.push_back(id);
            seen_.held = held_.size() + late_.size();
        }
    }
    if (class_name == "late") return;
    if (!accepted) return answer_as(class_name, name, id, event, opened.client()->string_view());
    Bytes headers;
    if (class_name == "choose") headers = one_header("Sec-WebSocket-Protocol", name);
    if (class_name == "extra") headers = one_header("x", name);
    reply(id, kSwitching, headers, {});
    // The first word may come before anything was heard.
    if (class_name == "chat" && name == "eager") send(opened.connection(), false, "welcome");
}

void TestSupervisor::handle_message(std::uint64_t id, const abi::SocketMessage& message) {
    const std::string text(reinterpret_cast<const char*>(message.data()->data()),
                           message.data()->size());
    const std::uint64_t connection = message.connection();
    bool is_slow = false;
    {
        const std::lock_guard lock(mutex_);
        seen_.messages.push_back((message.binary() ? 'b' : 't') + text);
        seen_.heard.push_back(seen_.messages.back());
        is_slow = text.starts_with("slow") || !slow_.empty();
        if (is_slow) {
            seen_.two_at_once =
                seen_.two_at_once || std::any_of(slow_.begin(), slow_.end(), [&](const auto& open) {
                    return open.second == connection;
                });
            slow_.emplace_back(id, connection);
            seen_.open_messages = slow_.size();
        }
    }
    if (is_slow) return;
    if (!message.binary() && text.starts_with("!")) return obey(id, connection, text.substr(1));
    send(connection, message.binary(), text);
    taken(id);
}

void TestSupervisor::obey(std::uint64_t id, std::uint64_t connection, const std::string& order) {
    std::istringstream words(order);
    std::string what;
    unsigned number = 0;
    words >> what >> number;
    if (what == "refuse") return taken(id, false, number, rest_of(words));
    if (what == "close") send_close(connection, number, rest_of(words));
    if (what == "flood") {
        std::size_t bytes = 0;
        words >> bytes;
        const std::string text(bytes, 'f');
        for (unsigned i = 0; i < number; ++i) send(connection, true, text);
    }
    if (what == "garbage") send(connection, false, "\xC3(");
    if (what == "empty") send(connection, false, "");
    taken(id);
}

void TestSupervisor::handle_closed(const abi::SocketClosed& closed) {
    const std::lock_guard lock(mutex_);
    seen_.heard.push_back("c" + std::to_string(closed.code()));
    seen_.closed.push_back({closed.connection(),
                            closed.code(),
                            closed.reason() == nullptr ? "" : closed.reason()->str()});
}

void TestSupervisor::taken(std::uint64_t id, bool ok, unsigned code, const std::string& text) {
    auto& fbb = channel_->builder();
    const auto why = fbb.CreateString(text);
    channel_->reply(id, abi::CreateSocketTaken(fbb, ok, static_cast<std::uint16_t>(code), why));
}

void TestSupervisor::send(std::uint64_t connection, bool binary, const std::string& text) {
    auto& fbb = channel_->builder();
    const auto data = fbb.CreateVector(as_bytes(text).data(), text.size());
    const auto sent = channel_->notify(abi::CreateSocketSend(fbb, connection, binary, data));
    HF_CHECK(sent == port::Sent::Now || sent == port::Sent::Queued, "a message fits");
}

void TestSupervisor::send_close(std::uint64_t connection,
                                unsigned code,
                                const std::string& reason) {
    auto& fbb = channel_->builder();
    const auto why = fbb.CreateString(reason);
    channel_->notify(
        abi::CreateCloseSocket(fbb, connection, static_cast<std::uint16_t>(code), why));
}

void TestSupervisor::say(std::uint64_t connection, bool binary, const std::string& text) {
    command([=, this] { send(connection, binary, text); });
}

void TestSupervisor::close(std::uint64_t connection, unsigned code, const std::string& reason) {
    command([=, this] { send_close(connection, code, reason); });
}

void TestSupervisor::take() {
    command([this] {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> slow;
        {
            const std::lock_guard lock(mutex_);
            slow.swap(slow_);
            seen_.open_messages = 0;
        }
        for (const auto& [id, connection] : slow) taken(id);
    });
}

}  // namespace hf::gateway
