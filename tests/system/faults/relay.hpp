// A Context between a shipped plugin and the SDK: everything passes, and a variant for tests bends what it overrides.
//
// Not for: changing what a plugin does by itself. When the process dies, everything here dies with it.
#pragma once

#include "abi/base/check.hpp"
#include "abi/sdk/plugin.hpp"

namespace hf::faults {

class Relay : public sdk::Context {
public:
    void attach(sdk::Context& inner) { inner_ = &inner; }
    [[nodiscard]] sdk::Context& inner() { return *inner_; }

    flatbuffers::FlatBufferBuilder& builder() override { return inner_->builder(); }
    [[nodiscard]] std::uint64_t carry(int fd, std::uint64_t bytes) override {
        return inner_->carry(fd, bytes);
    }
    [[nodiscard]] UniqueFd take_body() override { return inner_->take_body(); }
    void set_current(std::uint64_t req_id) override { inner_->set_current(req_id); }
    void watch(int fd, std::function<void()> fn) override { inner_->watch(fd, std::move(fn)); }
    void unwatch(int fd) override { inner_->unwatch(fd); }
    void post(std::function<void()> fn) override { inner_->post(std::move(fn)); }
    void log(abi::LogLevel level, std::string_view text) override { inner_->log(level, text); }
    [[nodiscard]] int passed_fd(std::string_view name) const override {
        return inner_->passed_fd(name);
    }
    [[nodiscard]] std::uint64_t generation() const override { return inner_->generation(); }
    [[nodiscard]] std::string_view node_id() const override { return inner_->node_id(); }

protected:
    // Context's own senders are its alone: what the shipped plugins send goes out through its typed calls again.
    void send_reply(std::uint64_t req_id, abi::Body type, flatbuffers::Offset<void> body) override {
        switch (type) {
            case abi::Body::Got:
                return reply_as<abi::Got>(req_id, body);
            case abi::Body::Stored:
                return reply_as<abi::Stored>(req_id, body);
            case abi::Body::Deleted:
                return reply_as<abi::Deleted>(req_id, body);
            case abi::Body::Listed:
                return reply_as<abi::Listed>(req_id, body);
            case abi::Body::Probed:
                return reply_as<abi::Probed>(req_id, body);
            case abi::Body::Prepared:
                return reply_as<abi::Prepared>(req_id, body);
            case abi::Body::Activated:
                return reply_as<abi::Activated>(req_id, body);
            case abi::Body::Delivered:
                return reply_as<abi::Delivered>(req_id, body);
            case abi::Body::Checkpointed:
                return reply_as<abi::Checkpointed>(req_id, body);
            case abi::Body::Quiesced:
                return reply_as<abi::Quiesced>(req_id, body);
            case abi::Body::Dropped:
                return reply_as<abi::Dropped>(req_id, body);
            default:
                HF_CHECK(false, "an answer this relay does not know");
        }
    }
    Result<void> send_notify(abi::Body type, flatbuffers::Offset<void> body) override {
        if (type == abi::Body::Counters)
            return inner_->notify(flatbuffers::Offset<abi::Counters>(body.o));
        HF_CHECK(type == abi::Body::Fault, "a one-way message this relay does not know");
        return inner_->notify(flatbuffers::Offset<abi::Fault>(body.o));
    }
    Result<std::uint64_t> send_request(abi::Body,
                                       flatbuffers::Offset<void>,
                                       std::int64_t) override {
        HF_CHECK(false, "the shipped storage and runtime ask nothing");
    }

private:
    template <class T>
    void reply_as(std::uint64_t req_id, flatbuffers::Offset<void> body) {
        inner_->reply(req_id, flatbuffers::Offset<T>(body.o));
    }

    sdk::Context* inner_ = nullptr;
};

}  // namespace hf::faults
