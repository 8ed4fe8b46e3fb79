#include "plugins/gateway-http/peer_client.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/base/hex.hpp"
#include "abi/base/limits.hpp"
#include "abi/ring/bodies.hpp"
#include "message_traits.hpp"
#include "plugins/gateway-http/http_write.hpp"
#include "plugins/gateway-http/peer_answer.hpp"
#include "plugins/http-client/name_service.hpp"

namespace hf::gateway {

namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
// libcurl's own limit lies behind ours, which knows what to say.
constexpr std::int64_t kTimeoutExtraMs = 2'000;
// The other gateway closes a connection that was silent for 75 s, unless it is told otherwise. One that closes while a call goes
// out leaves its outcome unknown.
constexpr long kIdleSecondsMax = 20;
// Of a large body, hashed at one go: below 2 ms.
constexpr std::size_t kHashBytes = std::size_t{512} * 1024;
constexpr std::size_t kOnceBytes = 16;
// Envelope, tables and padding around an answer's headers, body and text.
constexpr std::size_t kAroundAnswer = 512;

std::string new_once() {
    std::array<std::uint8_t, kOnceBytes> bytes{};
    // So few bytes never fail nor come short once the pool is up.
    while (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    }
    return hex(bytes);
}

}  // namespace

struct PeerClient::Call {
    std::uint64_t req_id = 0;
    std::int64_t deadline_ns = 0;  // 0: none
    std::string target;            // node id
    PeerRequest request;
    Peer* peer = nullptr;
    // A large body, until its digest is known and while it is sent.
    UniqueFd file;
    std::uint64_t file_bytes = 0;
    std::uint64_t hashed = 0;
    Sha256 digest;
    web::Loop::TimerId timer = 0;  // the deadline, or the next piece to hash
    web::Http::Id sent_as = 0;     // 0: not handed to libcurl yet
    // The answer's body: in memory, and in a file when it is too large for a record.
    Bytes body;
    Upload large;
};

PeerClient::PeerClient(Options options,
                       Requests& requests,
                       Counters& counters,
                       sdk::Context& context)
    : options_(std::move(options)), requests_(requests), counters_(counters), context_(context) {}

PeerClient::~PeerClient() {
    for (const auto& [id, call] : open_) requests_.drop(call->large);
}

Result<std::unique_ptr<PeerClient>> PeerClient::create(Options options,
                                                       Requests& requests,
                                                       Counters& counters,
                                                       sdk::Context& context) {
    std::unique_ptr<PeerClient> client(
        new PeerClient(std::move(options), requests, counters, context));
    HF_ASSIGN(client->loop_, web::Loop::create());
    web::load_name_service();
    // What libcurl sets up once in a process.
    HF_ASSIGN(const auto first, web::Http::create(*client->loop_, {}));
    return client;
}

Result<PeerClient::Peer*> PeerClient::peer_of(const std::string& url) {
    if (const auto found = peers_.find(url); found != peers_.end()) return &found->second;
    if (peers_.size() >= kPeersMax) {
        auto oldest = peers_.end();
        for (auto it = peers_.begin(); it != peers_.end(); ++it)
            if (it->second.open == 0 &&
                (oldest == peers_.end() || it->second.used < oldest->second.used))
                oldest = it;
        if (oldest == peers_.end())
            return fail(Code::Busy,
                        "calls to 64 other nodes are open, as many as are made at once");
        static_assert(kPeersMax == 64, "the sentence names this number");
        peers_.erase(oldest);
    }
    web::Http::Options options;
    options.connections_max = options_.connections_max;
    options.connect_timeout_ms = options_.connect_timeout_ms;
    options.idle_s_max = kIdleSecondsMax;
    HF_ASSIGN(auto http, web::Http::create(*loop_, std::move(options)));
    Peer& peer = peers_[url];
    peer.http = std::move(http);
    return &peer;
}

void PeerClient::call(const sdk::Message& message) {
    const abi::PeerCall& table = message.as<abi::PeerCall>();
    counters_.add(Count::PeerCalls);
    if (open_.size() >= kOpenMax) {
        static_assert(kOpenMax == 1024, "the sentence names this number");
        return say(message.req_id,
                   abi::PeerOutcome::NotSent,
                   "1024 calls to other nodes are open, as many as are made at once");
    }
    if (message.deadline_ns != 0 && message.deadline_ns <= monotonic_ns())
        return say(message.req_id, abi::PeerOutcome::NotSent, "the time of the call was up");
    auto request = read_peer_call(table);
    if (!request) return say(message.req_id, abi::PeerOutcome::NotSent, request.error().message);
    const auto peer = peer_of(request->url);
    if (!peer) return say(message.req_id, abi::PeerOutcome::NotSent, peer.error().message);
    auto made = std::make_unique<Call>();
    Call& call = *made;
    call.req_id = message.req_id;
    call.deadline_ns = message.deadline_ns;
    call.target = table.target()->str();
    call.request = std::move(request).value();
    call.peer = *peer;
    // HEAD goes without a body, whatever its client sent with it.
    if (call.request.method != "HEAD") call.file = context_.take_body();
    call.file_bytes = call.file.valid() ? table.body_bytes() : 0;
    ++call.peer->open;
    call.peer->used = ++calls_;
    open_.emplace(call.req_id, std::move(made));
    if (call.file.valid()) return hash_some(call);
    call.digest.add(as_bytes(call.request.method == "HEAD" ? "" : call.request.body));
    send(call, call.digest.hex_digest());
}

// The digest of a large body, a piece in each turn of the loop: others are served in between.
void PeerClient::hash_some(Call& call) {
    call.timer = 0;
    if (call.deadline_ns != 0 && call.deadline_ns <= monotonic_ns()) return time_is_up(call.req_id);
    // The loop's thread has no second user for it.
    static std::array<std::uint8_t, kHashBytes> piece;
    const std::size_t size = static_cast<std::size_t>(
        std::min<std::uint64_t>(piece.size(), call.file_bytes - call.hashed));
    if (!ring::read_body(call.file.get(), piece.data(), size, call.hashed)) {
        say(call.req_id, abi::PeerOutcome::NotSent, "the body cannot be read");
        return end(call.req_id);
    }
    call.digest.add({piece.data(), size});
    call.hashed += size;
    if (call.hashed == call.file_bytes) return send(call, call.digest.hex_digest());
    call.timer = loop_->after(0, [this, id = call.req_id] { hash_some(*open_.at(id)); });
}

void PeerClient::send(Call& call, const std::string& body_sha256) {
    PeerRequest& request = call.request;
    // Without a deadline the longest that an event may wait.
    const std::int64_t left_ms =
        call.deadline_ns == 0
            ? kEventWaitMsMax
            : std::max<std::int64_t>(1, (call.deadline_ns - monotonic_ns()) / kNsPerMs);
    PeerFacts facts;
    facts.origin = request.origin;
    facts.target = call.target;
    facts.tenant = options_.tenant;
    facts.app = options_.app;
    facts.time_ms = wall_ms();
    facts.once = new_once();
    facts.deadline_ms = left_ms;
    facts.fields_sha256 = fields_digest(request.headers);
    PeerFields fields = peer_fields(facts);
    fields.emplace_back(
        kPeerSignature,
        signature_of(options_.secret,
                     canonical_text(request.method, request.target, fields, body_sha256)));

    web::HttpRequest out;
    out.method = request.method;
    out.url = request.url;
    out.target = request.target;
    out.headers = request.headers;
    const auto has = [&](std::string_view name) {
        return std::any_of(out.headers.begin(), out.headers.end(), [&](const auto& header) {
            return header.first == name;
        });
    };
    const bool accepts = has("accept");
    const bool typed = has("content-type");
    out.headers.insert(out.headers.end(), fields.begin(), fields.end());
    // Fields that libcurl would add by itself are none that the client sent.
    if (!accepts) out.left_out.emplace_back("accept");
    if (!typed) out.left_out.emplace_back("content-type");
    if (call.file.valid()) {
        out.body_fd = call.file.get();
        out.body_bytes = call.file_bytes;
    } else {
        out.body = std::move(request.body);
    }
    out.once = true;
    out.timeout_ms = left_ms + kTimeoutExtraMs;
    out.answer_bytes_max = kLargeBodyBytesMax;
    const std::uint64_t id = call.req_id;
    // The call stays where it is until it is answered or its time is up, which cancels this.
    out.on_body = [this, &call](std::string_view piece) { return keep(call, piece); };
    call.timer = loop_->after(left_ms, [this, id] { time_is_up(id); });
    call.sent_as = call.peer->http->send(
        std::move(out), [this, id](web::HttpAnswer& answer) { answered(id, answer); });
}

// A piece of the answer's body. False: there is no room for it.
bool PeerClient::keep(Call& call, std::string_view piece) {
    const BytesView bytes = as_bytes(piece);
    if (call.large.reserved == 0 && call.body.size() + bytes.size() <= kPayloadBytesMax) {
        call.body.insert(call.body.end(), bytes.begin(), bytes.end());
        return true;
    }
    return keep_in_file(call, bytes);
}

// Behind what came before it.
bool PeerClient::keep_in_file(Call& call, BytesView bytes) {
    const Bytes before = std::exchange(call.body, {});
    const std::uint64_t more = before.size() + bytes.size();
    if (!requests_.grow(call.large, call.large.bytes + more).empty()) return false;
    call.large.bytes += more;
    const int fd = call.large.file.get();
    return ring::append_body(fd, before.data(), before.size()).ok() &&
           ring::append_body(fd, bytes.data(), bytes.size()).ok();
}

void PeerClient::time_is_up(std::uint64_t id) {
    Call& call = *open_.at(id);
    call.timer = 0;
    const bool sent = call.sent_as != 0 && call.peer->http->cancel(call.sent_as);
    say(id,
        sent ? abi::PeerOutcome::Unknown : abi::PeerOutcome::NotSent,
        sent ? "the other node did not answer in time"
             : "the time was up before the call could be sent");
    end(id);
}

void PeerClient::answered(std::uint64_t id, web::HttpAnswer& answer) {
    Call& call = *open_.at(id);
    if (answer.answered) {
        reply(call, answer);
    } else if (!answer.sent) {
        say(id,
            abi::PeerOutcome::NotSent,
            "node " + call.target + " at " + call.request.url +
                " cannot be reached: " + answer.trouble);
    } else {
        say(id,
            abi::PeerOutcome::Unknown,
            "node " + call.target + " at " + call.request.url +
                " was sent the call and did not answer it: " + answer.trouble);
    }
    end(id);
}

void PeerClient::reply(Call& call, const web::HttpAnswer& answer) {
    PeerAnswer said = read_peer_answer(answer, call.request.method == "HEAD");
    if (said.reason != abi::ReplyReason::Ok) {
        call.body.clear();
        requests_.drop(call.large);
    }
    // A body that has no room in the record comes beside it, whatever its size.
    const std::size_t room = abi::traits_of(abi::Body::PeerCall).reply_max - kAroundAnswer;
    const bool fits = call.body.size() + said.headers.size() + kPeerTextMax <= room;
    if ((!fits && !keep_in_file(call, {})) ||
        (call.large.reserved != 0 && !ring::seal_body(call.large.file.get())))
        return say(call.req_id, abi::PeerOutcome::Unknown, "the answer could not be kept");
    counters_.add(Count::PeerCallsAnswered);
    flatbuffers::FlatBufferBuilder& builder = context_.builder();
    const auto headers = builder.CreateVector(said.headers.data(), said.headers.size());
    const auto body = builder.CreateVector(call.body.data(), call.body.size());
    const auto text = builder.CreateString(said.text.substr(0, kPeerTextMax));
    const bool large = call.large.reserved != 0;
    const std::uint64_t token = large ? context_.carry(call.large.file.get(), call.large.bytes) : 0;
    context_.reply(call.req_id,
                   abi::CreatePeerReplied(builder,
                                          abi::PeerOutcome::Answered,
                                          said.status,
                                          said.reason,
                                          said.retry_after_ms,
                                          headers,
                                          body,
                                          text,
                                          token,
                                          large ? call.large.bytes : 0));
}

void PeerClient::say(std::uint64_t req_id, abi::PeerOutcome outcome, std::string_view why) {
    counters_.add(outcome == abi::PeerOutcome::NotSent ? Count::PeerCallsNotSent
                                                       : Count::PeerCallsUnknown);
    flatbuffers::FlatBufferBuilder& builder = context_.builder();
    const std::string_view cut = why.substr(0, kPeerTextMax);
    const auto text = builder.CreateString(cut.data(), cut.size());
    context_.reply(
        req_id, abi::CreatePeerReplied(builder, outcome, 0, abi::ReplyReason::Ok, 0, 0, 0, text));
}

void PeerClient::end(std::uint64_t id) {
    const auto found = open_.find(id);
    Call& call = *found->second;
    loop_->cancel(call.timer);
    requests_.drop(call.large);
    --call.peer->open;
    open_.erase(found);
}

}  // namespace hf::gateway
