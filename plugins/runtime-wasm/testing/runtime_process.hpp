// The supervisor's side of one runtime-wasm process: configures it and asks one thing at a time.
#pragma once

#include <doctest/doctest.h>
#include <sys/types.h>

#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "abi/base/clock.hpp"
#include "agent/port/channel.hpp"
#include "plugins/runtime-wasm/testing/support.hpp"
#include "tests/abi/rig.hpp"

namespace hf::wasm::testing {

inline constexpr int kPatienceMs = 20'000;  // sanitizer builds on a busy machine
inline constexpr std::uint64_t kFirstId = 10;

struct ModuleFile {
    std::string class_name;
    std::string so;
    std::string key;
    std::uint32_t pages_max = 32;
    std::uint32_t cpu_us = 100'000;
    std::uint32_t wall_us = 2'000'000;
    std::uint64_t body_max = 0;
    std::string vouched = {};  // the hash of its .meta; empty: of the one that lies beside `so`
    bool must_load = false;
    [[nodiscard]] std::string meta_hash() const {
        if (!vouched.empty()) return vouched;
        const auto meta = read_file(so.substr(0, so.size() - 3) + ".meta", kMetaBytesMax);
        return meta ? sha256_hex(*meta) : std::string("not there");
    }
};

struct Sent {
    std::string target;
    std::string method;
    std::string payload;
    friend bool operator==(const Sent&, const Sent&) = default;
};
struct Command {
    std::uint64_t connection = 0;
    bool close = false;
    int code = 0;
    std::string data;
    friend bool operator==(const Command&, const Command&) = default;
};

struct Answer {
    abi::DeliverStatus status = abi::DeliverStatus::Ok;
    std::string error;
    int reply = 0;
    std::string body;
    Bytes changes;
    std::uint32_t state_bytes = 0;
    bool replied = false;
    bool passivate = false;
    // What became of the alarm: -1 nothing, 0 cleared.
    std::int64_t alarm_ms = -1;
    std::vector<Sent> sends;
    std::vector<Command> sockets;
    std::uint32_t call_n = 0;  // 0: it waits for none
    Sent call;
    std::uint32_t timeout_ms = 0;
    std::shared_ptr<const port::SealedBody> large;  // the reply's body, when it came as a file
};

inline std::string string_of(const flatbuffers::String* text) {
    return text == nullptr ? std::string() : text->str();
}

inline std::string text_of(const flatbuffers::Vector<std::uint8_t>* vector) {
    return vector == nullptr ? std::string() : std::string(vector->begin(), vector->end());
}
inline Bytes bytes_of(const flatbuffers::Vector<std::uint8_t>* vector) {
    return vector == nullptr ? Bytes{} : Bytes(vector->begin(), vector->end());
}

inline Answer answer_of(const abi::Delivered& said) {
    Answer answer;
    answer.status = said.status();
    answer.error = string_of(said.error());
    answer.reply = said.reply_status();
    answer.body = text_of(said.reply_body());
    answer.changes = bytes_of(said.changes());
    answer.state_bytes = said.state_bytes();
    answer.replied = said.replied();
    answer.passivate = said.passivate();
    if (const auto* alarm = said.alarm()) answer.alarm_ms = alarm->clear() ? 0 : alarm->due_ms();
    if (said.sends() != nullptr)
        for (const abi::Send* send : *said.sends())
            answer.sends.push_back(
                {send->target()->str(), string_of(send->method()), text_of(send->payload())});
    if (said.sockets() != nullptr)
        for (const abi::SocketCommand* command : *said.sockets())
            answer.sockets.push_back({command->connection(),
                                      command->close(),
                                      command->code(),
                                      text_of(command->data())});
    if (const auto* call = said.call()) {
        answer.call_n = call->n();
        answer.call = {call->target()->str(), string_of(call->method()), text_of(call->payload())};
        answer.timeout_ms = call->timeout_ms();
    }
    return answer;
}

// One plugin process and the supervisor's side of its link.
class Runtime {
public:
    // `start` makes the process from the plugin's end of the control socket and answers its pid.
    using Start = std::function<pid_t(UniqueFd)>;

    explicit Runtime(Start start,
                     const std::vector<ModuleFile>& modules,
                     const std::vector<std::pair<std::string, std::string>>& settings = {}) {
        auto made = port::Channel::create(pool_, {}, 7, abi::Kind::Runtime);
        REQUIRE(made.ok());
        channel_ = std::move(made).value();
        pid_ = start(channel_->take_plugin_end());
        REQUIRE(channel_->attach({}).ok());
        bool greeted = false;
        bool answered = false;
        const auto handler = [&](const port::Received& received) {
            greeted = greeted || received.type == abi::Body::Greet;
            if (received.type != abi::Body::Ready) return;
            const auto& said = received.as<abi::Ready>();
            ready = said.ok();
            if (said.error() != nullptr) error = said.error()->str();
            answered = true;
        };
        REQUIRE(rig::run_until(
            *channel_, handler, [&] { return greeted; }, kPatienceMs));
        auto& fbb = channel_->builder();
        channel_->notify(abi::CreateWelcome(fbb, 0, 7, fbb.CreateString("test-node")));
        auto& again = channel_->builder();
        std::vector<flatbuffers::Offset<abi::Setting>> pairs;
        for (const auto& [key, value] : settings)
            pairs.push_back(abi::CreateSettingDirect(again, key.c_str(), value.c_str()));
        std::vector<flatbuffers::Offset<abi::Module>> files;
        for (const ModuleFile& file : modules)
            files.push_back(abi::CreateModuleDirect(again,
                                                    file.class_name.c_str(),
                                                    file.so.c_str(),
                                                    file.key.c_str(),
                                                    0,
                                                    file.pages_max,
                                                    file.cpu_us,
                                                    file.wall_us,
                                                    file.body_max,
                                                    file.meta_hash().c_str(),
                                                    file.must_load));
        const auto list = again.CreateVector(pairs);
        const auto module_list = again.CreateVector(files);
        channel_->request(1, abi::CreateConfigure(again, 0, list, 42, 0, 0, module_list), 0, 0);
        (void)rig::run_until(
            *channel_, handler, [&] { return answered; }, kPatienceMs);
    }

    // The error of the last piece; empty: serving.
    std::string activate(std::uint64_t activation,
                         const std::string& class_name,
                         const std::vector<std::pair<Bytes, bool>>& entries = {},
                         std::int64_t alarm_ms = 0) {
        std::string failed;
        // One entry a piece, and an empty last one.
        for (std::size_t part = 0; part <= entries.size() && failed.empty(); ++part) {
            auto& fbb = channel_->builder();
            std::vector<flatbuffers::Offset<abi::StoredChanges>> stored;
            if (part < entries.size())
                stored.push_back(abi::CreateStoredChangesDirect(
                    fbb, part + 1, entries[part].second, &entries[part].first));
            const auto offset = abi::CreateActivateDirect(fbb,
                                                          "actor/t/c/n",
                                                          "t",
                                                          class_name.c_str(),
                                                          "n",
                                                          activation,
                                                          1,
                                                          static_cast<std::uint32_t>(part),
                                                          part < entries.size(),
                                                          &stored,
                                                          part == entries.size() ? alarm_ms : 0);
            ask(offset, [&](const port::Received& received) {
                const auto& said = received.as<abi::Activated>();
                CHECK(said.activation() == activation);
                CHECK(said.part() == part);
                if (said.status() != abi::ActivateStatus::Ok) failed = said.error()->str();
                wants_stop = said.wants_stop();
            });
        }
        return failed;
    }

    // The event's id is that of its activation, which is all that tells two of them apart here.
    Answer deliver(std::uint64_t activation,
                   const Bytes& event,
                   abi::EventKind kind = abi::EventKind::Http,
                   std::int64_t now_ms = 1'700'000'000'000,
                   std::shared_ptr<const port::SealedBody> body = nullptr) {
        Answer answer;
        auto& fbb = channel_->builder();
        const abi::EventId id(1, activation);
        const std::uint64_t bytes = body == nullptr ? 0 : body->bytes();
        const std::uint64_t token = body == nullptr ? 0 : channel_->carry(std::move(body));
        const auto vector = fbb.CreateVector(event);
        ask(abi::CreateDeliver(fbb, activation, &id, 0, kind, vector, now_ms, token, bytes),
            [&](const port::Received& received) {
                answer = answer_of(received.as<abi::Delivered>());
                answer.large = received.attached;
            });
        return answer;
    }
    // Http events of several units, sent together; in which order they were answered, each of them well.
    std::vector<std::size_t> race(const std::vector<std::pair<std::uint64_t, Bytes>>& events) {
        const std::uint64_t first = next_;
        for (const auto& [activation, event] : events) {
            auto& fbb = channel_->builder();
            const abi::EventId id(1, activation);
            const auto vector = fbb.CreateVector(event);
            REQUIRE(channel_->request(next_++,
                                      abi::CreateDeliver(
                                          fbb, activation, &id, 0, abi::EventKind::Http, vector, 1),
                                      monotonic_ns() + 30'000'000'000,
                                      0) == port::Sent::Now);
        }
        std::vector<std::size_t> order;
        const auto handler = [&](const port::Received& received) {
            if (received.type != abi::Body::Delivered) return;
            CHECK(received.as<abi::Delivered>().status() == abi::DeliverStatus::Ok);
            order.push_back(static_cast<std::size_t>(received.reply_to - first));
        };
        REQUIRE(rig::run_until(
            *channel_, handler, [&] { return order.size() == events.size(); }, kPatienceMs));
        return order;
    }
    // The answer to call `n` of the event of `activation` that waits.
    Answer resume(std::uint64_t activation,
                  std::uint32_t n,
                  std::string_view payload,
                  std::int32_t code = 0) {
        Answer answer;
        auto& fbb = channel_->builder();
        const abi::EventId id(1, activation);
        const BytesView bytes = as_bytes(payload);
        ask(abi::CreateResume(
                fbb, activation, &id, n, code, fbb.CreateVector(bytes.data(), bytes.size())),
            [&](const port::Received& received) {
                answer = answer_of(received.as<abi::Delivered>());
            });
        return answer;
    }
    bool quiesced(std::uint64_t activation) {
        bool ok = false;
        ask(abi::CreateQuiesce(channel_->builder(), activation, 1),
            [&](const port::Received& received) { ok = received.as<abi::Quiesced>().ok(); });
        return ok;
    }
    Answer get(std::uint64_t activation, const std::string& url) {
        return deliver(activation, http_event("GET", url));
    }

    Bytes checkpoint(std::uint64_t activation) {
        Bytes base;
        ask(abi::CreateCheckpoint(channel_->builder(), activation),
            [&](const port::Received& received) {
                checkpointed = received.as<abi::Checkpointed>().ok();
                base = bytes_of(received.as<abi::Checkpointed>().base());
            });
        return base;
    }
    void drop(std::uint64_t activation) {
        ask(abi::CreateDrop(channel_->builder(), activation), [](const port::Received&) {});
    }

    // Lines of /proc/<pid>/maps that may be executed.
    [[nodiscard]] std::set<std::string> executable_maps() const {
        std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
        std::set<std::string> out;
        for (std::string line; std::getline(maps, line);)
            if (line.find("x", line.find(' ')) == line.find(' ') + 3) out.insert(line);
        return out;
    }
    [[nodiscard]] std::size_t rss_kib() const {
        std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
        for (std::string word; status >> word;)
            if (word == "VmRSS:") {
                std::size_t kib = 0;
                status >> kib;
                return kib;
            }
        return 0;
    }

    bool wants_stop = false;  // of the last activation
    bool ready = false;
    bool checkpointed = false;  // of the last checkpoint()
    std::string error;
    std::vector<std::string> logs;

private:
    template <class T>
    void ask(flatbuffers::Offset<T> body,
             const std::function<void(const port::Received&)>& on_answer) {
        const std::uint64_t id = next_++;
        REQUIRE(channel_->request(id, body, monotonic_ns() + 30'000'000'000, 0) !=
                port::Sent::Busy);
        bool answered = false;
        std::string fault;
        const auto handler = [&](const port::Received& received) {
            if (received.type == abi::Body::Log)
                logs.push_back(received.as<abi::Log>().text()->str());
            if (received.reply_to != id) return;
            answered = true;
            on_answer(received);
        };
        const bool done = rig::run_until(
            *channel_, handler, [&] { return answered; }, kPatienceMs, &fault);
        REQUIRE_MESSAGE(done, "no answer: " << fault);
    }

    port::SegmentPool pool_;
    std::unique_ptr<port::Channel> channel_;
    pid_t pid_ = 0;
    std::uint64_t next_ = kFirstId;
};

}  // namespace hf::wasm::testing
