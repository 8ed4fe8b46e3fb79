// The plugin's end of its link: attach, greet, credits, dispatch, shed. plugin.cpp puts a loop around it.
//
// Trust: the supervisor is believed less than memory is: a record that does not verify ends this process with a sentence
// on stderr, because a plugin that misreads its orders is worse than one that is restarted. When the supervisor dies the
// control socket hangs up and the process ends at once with code 0: there is nobody left to answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/base/unique_fd.hpp"
#include "abi/ring/bodies.hpp"
#include "abi/ring/endpoint.hpp"
#include "abi/ring/open_table.hpp"
#include "abi/sdk/attach.hpp"
#include "abi/sdk/plugin.hpp"
#include "abi/verify/verify.hpp"

namespace hf::sdk {

class Session final : public Context {
public:
    // Reads the attach message from the control socket, maps the link and publishes Greet. Waits for the supervisor.
    static Result<std::unique_ptr<Session>> attach(Plugin& plugin,
                                                   const Identity& identity,
                                                   UniqueFd control);
    ~Session() override;

    [[nodiscard]] int poll_fd() const { return epoll_.get(); }
    // Waits for descriptors (ms, 0: only looks, -1: for ever) and runs what is due of them.
    void poll(int timeout_ms);
    // Handles a bounded batch of records, then batch_done() and publication of what was sent.
    void drain();
    // The plugin's own work; true: there is more.
    [[nodiscard]] bool work();
    // False: drain() again instead of blocking.
    [[nodiscard]] bool before_block();
    // For poll(): until the shed deadline, or -1.
    [[nodiscard]] int wait_ms() const;
    [[nodiscard]] bool should_exit() const { return exiting_; }
    [[nodiscard]] int exit_code() const { return exit_code_; }

    flatbuffers::FlatBufferBuilder& builder() override {
        builder_.Clear();
        return builder_;
    }
    [[nodiscard]] std::uint64_t carry(int fd, std::uint64_t bytes) override;
    [[nodiscard]] UniqueFd take_body() override { return std::move(body_); }
    void set_current(std::uint64_t req_id) override;
    void watch(int fd, std::function<void()> fn) override;
    void unwatch(int fd) override;
    void post(std::function<void()> fn) override;
    void log(abi::LogLevel level, std::string_view text) override;
    [[nodiscard]] int passed_fd(std::string_view name) const override;
    [[nodiscard]] std::uint64_t generation() const override { return generation_; }
    [[nodiscard]] std::string_view node_id() const override { return node_id_; }

    // For bindings of other languages, which build and read whole envelopes themselves.
    // The bytes of the record that handle() is being called for; good until it returns.
    [[nodiscard]] BytesView record() const { return record_; }
    // True while a request of the supervisor waits for its answer.
    [[nodiscard]] bool open(std::uint64_t req_id) { return asked_.find(req_id) != nullptr; }
    // Sends an answer or one-way message that somebody else built: verified here, then its seq and generation are set
    // in place, so both must be present in the bytes (any value but 0). Invalid: not sent, the reason is named.
    Result<void> send_envelope(std::span<std::uint8_t> bytes);

protected:
    void send_reply(std::uint64_t req_id, abi::Body type, flatbuffers::Offset<void> body) override;
    Result<void> send_notify(abi::Body type, flatbuffers::Offset<void> body) override;
    Result<std::uint64_t> send_request(abi::Body type,
                                       flatbuffers::Offset<void> body,
                                       std::int64_t deadline_ns) override;

private:
    Session(Plugin& plugin, Identity identity, UniqueFd control, Attachment attachment);
    Result<void> open_loop();

    void greet();
    void handle_record(const layout::RecordHeader& header, const abi::Envelope& envelope);
    void receive_body(const Message& message);
    void handle_request(const Message& message);
    void handle_answer(const Message& message);
    void configure(const Message& message);
    void batch_end(bool handled);
    void run_posted();
    void check_shed();
    void leave(int code);
    BytesView finish(flatbuffers::FlatBufferBuilder& builder,
                     abi::Body type,
                     flatbuffers::Offset<void> body,
                     std::uint64_t reply_to,
                     std::int64_t deadline_ns);
    bool write(abi::Body type, std::uint64_t req_id, BytesView payload, std::uint64_t fill_max);
    [[noreturn]] void blame_supervisor(const char* what) const;
    [[noreturn]] void blame_plugin(const std::string& what) const;

    Plugin& plugin_;
    Identity identity_;
    UniqueFd control_;
    UniqueFd epoll_;
    UniqueFd post_bell_;
    std::vector<std::pair<std::string, UniqueFd>> extras_;
    ring::Endpoint end_;
    verify::Checker checker_;
    std::uint64_t generation_;
    std::string node_id_;             // of Welcome
    std::uint64_t notify_fill_max_;   // of P: one-way messages take the first quarter at most
    std::uint64_t request_fill_max_;  // of P: leaves free what answers and one padding may take
    std::uint32_t credit_bytes_;      // what answers to us may take
    std::uint32_t credit_used_ = 0;

    ring::OpenTable asked_;  // requests of the supervisor that we have not answered
    ring::OpenTable ours_;   // requests of ours that the supervisor has not answered
    flatbuffers::FlatBufferBuilder builder_;
    flatbuffers::FlatBufferBuilder
        log_builder_;  // a log line may come while another message is being built
    std::uint64_t seq_ = 0;
    std::uint64_t last_req_id_ = 0;
    std::uint64_t progress_ = 0;
    std::uint64_t dropped_logs_ = 0;
    BytesView record_;
    ring::Carried carried_;  // by the message being built
    std::uint64_t last_token_ = 0;
    ring::BodyInbox inbox_;
    UniqueFd body_;  // of the message being handled
    bool current_touched_ = false;
    bool starved_ = false;  // something was refused for want of room since the last batch
    bool welcomed_ = false;
    bool configured_ = false;
    bool shedding_ = false;
    bool exiting_ = false;
    int exit_code_ = 0;
    std::int64_t shed_deadline_ns_ = 0;

    std::unordered_map<int, std::shared_ptr<std::function<void()>>> watched_;
    std::mutex posted_mutex_;
    std::vector<std::function<void()>> posted_;
};

}  // namespace hf::sdk
