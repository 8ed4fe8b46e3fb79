// Tests only: a Channel with a FakePlugin at its other end.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "agent/port/fake_plugin.hpp"

namespace hf::port {

inline constexpr port::ChannelSizes kSmall{512U * 1024U, 512U * 1024U};
inline constexpr std::size_t kBudget = 256;
inline constexpr std::uint64_t kGeneration = 11;

struct Link {
    port::SegmentPool pool;
    std::unique_ptr<Channel> channel;
    std::unique_ptr<FakePlugin> plugin;
    std::vector<std::uint64_t> answered;  // reply_to of what was handed over
    std::vector<std::uint64_t> asked;     // req_id of the instance's requests

    explicit Link(abi::Kind kind = abi::Kind::Storage, const port::ChannelSizes& sizes = kSmall) {
        auto made = Channel::create(pool, sizes, kGeneration, kind);
        REQUIRE(made.ok());
        channel = std::move(made).value();
        plugin = std::make_unique<FakePlugin>(*channel);
    }
    port::Channel& operator*() const { return *channel; }

    Result<bool> drain(std::size_t budget = kBudget) {
        return channel->drain(budget, [this](const Received& received) {
            if (received.reply_to != 0) answered.push_back(received.reply_to);
            if (received.req_id != 0) asked.push_back(received.req_id);
        });
    }
    // The rule that the instance broke, or "".
    std::string rule() {
        const auto result = drain();
        return result ? "" : result.error().message;
    }
    Sent get(std::uint64_t id, const std::string& key = "k") {
        auto& fbb = channel->builder();
        const auto text = fbb.CreateString(key);
        return channel->request(id, abi::CreateGet(fbb, text), 0, 0);
    }
    void answer(std::uint64_t id, std::size_t bytes = 0) {
        auto& fbb = plugin->builder();
        const auto body = fbb.CreateVector(Bytes(bytes, 1));
        Lies lies;
        lies.reply_to = id;
        REQUIRE(plugin->send(abi::CreateGot(fbb, abi::Outcome::Applied, body), lies));
    }
    // A gateway's request.
    void ask(std::uint64_t id) {
        auto& fbb = plugin->builder();
        const auto name = fbb.CreateString("n");
        const auto event = fbb.CreateVector(Bytes(8, 1));
        Lies lies;
        lies.req_id = id;
        REQUIRE(plugin->send(abi::CreateRequest(fbb, name, name, event), lies));
    }
    void log(const Lies& lies = {}) {
        auto& fbb = plugin->builder();
        const auto text = fbb.CreateString("line");
        REQUIRE(plugin->send(abi::CreateLog(fbb, abi::LogLevel::Info, text), lies));
    }
};

}  // namespace hf::port
