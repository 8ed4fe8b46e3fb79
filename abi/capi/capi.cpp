// The C face of the SDK: a pull interface over the same Session that C++ plugins use. Messages are copied once more into
// a queue, so that the caller may hold one across its own calls. Exceptions do not cross it: nothing below throws but for
// want of memory, which ends the process.
#include "abi/capi/holdfast_plugin.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "abi/base/hash.hpp"
#include "abi/layout/attach.hpp"
#include "abi/sdk/start.hpp"

namespace {

using hf::sdk::Session;

int exit_code_of_failed_attach = 0;

struct Record {
    hf_message message{};
    std::vector<std::uint8_t> bytes;
};

}  // namespace

struct hf_plugin final : hf::sdk::Plugin {
    hf_identity facts{};
    hf::sdk::Identity identity_;
    std::unique_ptr<Session> session;
    std::deque<Record> queue;  // at most one batch of the session
    Record current;
    std::string policy;
    std::vector<std::pair<std::string, std::string>> settings;
    std::uint64_t seed = 0;
    std::string error;
    bool configured = false;

    [[nodiscard]] hf::sdk::Identity identity() const override { return identity_; }

    hf::Result<void> configure(const hf::abi::Configure& configure,
                               hf::sdk::Context& context) override {
        (void)context;
        if (configure.policy() != nullptr) policy = configure.policy()->str();
        seed = configure.seed();
        if (configure.settings() != nullptr)
            for (const hf::abi::Setting* one : *configure.settings())
                settings.emplace_back(one->key()->str(), one->value()->str());
        const char* refused =
            facts.configure != nullptr ? facts.configure(this, facts.user) : nullptr;
        if (refused != nullptr) return hf::fail(hf::Code::Invalid, refused);
        configured = true;
        return {};
    }

    void handle(const hf::sdk::Message& message) override {
        Record record;
        const hf::BytesView bytes = session->record();
        record.bytes.assign(bytes.begin(), bytes.end());
        record.message.req_id = message.req_id;
        record.message.type = static_cast<std::uint16_t>(message.type);
        record.message.deadline_ns = message.deadline_ns;
        queue.push_back(std::move(record));
    }
    bool shed_done() override { return queue.empty(); }

    // One turn of the loop.
    void turn() {
        if (session->before_block()) session->poll(session->wait_ms());
        session->drain();
    }
    int refuse(std::string why) {
        error = std::move(why);
        return -1;
    }
    template <class T>
    int answer(std::uint64_t req_id, flatbuffers::Offset<T> body) {
        if (!session->open(req_id)) return refuse("the request is not open");
        session->reply(req_id, body);
        return 0;
    }
};

namespace {

const char* text_of(const flatbuffers::String* text) {
    return text == nullptr ? "" : text->c_str();
}

// SAFETY of the readers below: the bytes were verified when they came and are the plugin's own copy.
const hf::abi::Place* place_of(const hf_message* message) {
    if (message->type != static_cast<std::uint16_t>(hf::abi::Body::Place)) return nullptr;
    return hf::abi::GetEnvelope(message->envelope)->body_as_Place();
}

const hf::abi::Candidate* candidate_of(const hf_message* message, std::uint32_t index) {
    const hf::abi::Place* place = place_of(message);
    if (place == nullptr || place->candidates() == nullptr || index >= place->candidates()->size())
        return nullptr;
    return place->candidates()->Get(index);
}

}  // namespace

hf_plugin* hf_attach(const hf_identity* identity, int argc, char** argv) {
    auto plugin = std::make_unique<hf_plugin>();
    plugin->facts = *identity;
    plugin->identity_ = {
        static_cast<hf::abi::Kind>(identity->kind), identity->name, identity->version, {}, {}};
    for (const char* const* policy = identity->policies; policy != nullptr && *policy != nullptr;
         ++policy)
        plugin->identity_.policies.emplace_back(*policy);
    plugin->session = hf::sdk::start_session(*plugin, argc, argv, exit_code_of_failed_attach);
    if (plugin->session == nullptr) return nullptr;
    while (!plugin->configured && !plugin->session->should_exit()) plugin->turn();
    if (plugin->configured) return plugin.release();
    exit_code_of_failed_attach = plugin->session->exit_code();
    return nullptr;
}

int hf_next(hf_plugin* plugin, hf_message* message) {
    plugin->current = {};
    while (plugin->queue.empty()) {
        if (plugin->session->should_exit()) return 0;
        plugin->turn();
    }
    plugin->current = std::move(plugin->queue.front());
    plugin->queue.pop_front();
    plugin->current.message.envelope = plugin->current.bytes.data();
    plugin->current.message.envelope_bytes = plugin->current.bytes.size();
    if (plugin->current.message.req_id != 0)
        plugin->session->set_current(plugin->current.message.req_id);
    *message = plugin->current.message;
    return 1;
}

int hf_send(hf_plugin* plugin, const uint8_t* envelope, size_t bytes) {
    std::vector<std::uint8_t> copy(envelope, envelope + bytes);
    const auto sent = plugin->session->send_envelope(copy);
    return sent ? 0 : plugin->refuse(sent.error().message);
}

void hf_log(hf_plugin* plugin, int level, const char* text) {
    plugin->session->log(
        static_cast<hf::abi::LogLevel>(level < HF_TRACE || level > HF_ERROR ? HF_ERROR : level),
        text);
}

const char* hf_policy(const hf_plugin* plugin) {
    return plugin->policy.c_str();
}

const char* hf_setting(const hf_plugin* plugin, const char* key) {
    for (const auto& [known, value] : plugin->settings)
        if (known == key) return value.c_str();
    return nullptr;
}

uint64_t hf_seed(const hf_plugin* plugin) {
    return plugin->seed;
}
const char* hf_last_error(const hf_plugin* plugin) {
    return plugin->error.c_str();
}

int hf_detach(hf_plugin* plugin) {
    const int code = plugin->session->exit_code();
    delete plugin;
    return code;
}

int hf_exit_code(const hf_plugin* plugin) {
    return plugin == nullptr ? exit_code_of_failed_attach : plugin->session->exit_code();
}

int hf_place_read(hf_plugin* plugin, const hf_message* message, hf_place* place) {
    const hf::abi::Place* in = place_of(message);
    if (in == nullptr) return plugin->refuse("the message is no Place");
    place->subject = text_of(in->subject());
    place->class_name = text_of(in->class_name());
    place->sequence = in->sequence();
    place->seed = hf::mix64(plugin->seed ^ hf::mix64(in->sequence()));
    place->explain = in->explain() ? 1 : 0;
    place->candidates = in->candidates() == nullptr ? 0 : in->candidates()->size();
    return 0;
}

int hf_place_candidate(hf_plugin* plugin,
                       const hf_message* message,
                       uint32_t index,
                       hf_candidate* candidate) {
    const hf::abi::Candidate* in = candidate_of(message, index);
    if (in == nullptr) return plugin->refuse("there is no such candidate");
    *candidate = {in->id(),
                  text_of(in->node()),
                  in->instance(),
                  in->generation(),
                  in->local() ? 1 : 0,
                  in->resident(),
                  in->capacity(),
                  in->inflight(),
                  in->weight()};
    return 0;
}

const char* hf_place_label(hf_plugin* plugin,
                           const hf_message* message,
                           uint32_t index,
                           const char* key) {
    (void)plugin;
    const hf::abi::Candidate* in = candidate_of(message, index);
    if (in == nullptr || in->labels() == nullptr) return nullptr;
    for (const hf::abi::Setting* label : *in->labels())
        if (std::strcmp(label->key()->c_str(), key) == 0) return label->value()->c_str();
    return nullptr;
}

int hf_placed(hf_plugin* plugin, uint64_t req_id, uint32_t id) {
    return plugin->answer(req_id, hf::abi::CreatePlaced(plugin->session->builder(), id));
}

int hf_placed_nobody(hf_plugin* plugin, uint64_t req_id, const char* reason) {
    constexpr std::size_t kReasonBytesMax = 256;
    auto& fbb = plugin->session->builder();
    const auto text = fbb.CreateString(reason, ::strnlen(reason, kReasonBytesMax));
    return plugin->answer(req_id, hf::abi::CreatePlaced(fbb, 0, true, text));
}
