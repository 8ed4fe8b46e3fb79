#include "abi/sdk/session.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi/base/clock.hpp"
#include "abi/layout/atomics.hpp"
#include "abi/sdk/lockdown.hpp"

namespace hf::sdk {

namespace {

// Records handled before descriptors are looked at again: 256 small ones are under 0.2 ms.
constexpr std::size_t kBatchRecords = 256;
// A log line longer than this is cut: the share of the ring for one-way messages is small.
constexpr std::size_t kLogBytesMax = 4096;
// Room for Ready{error} in the 512 bytes of its reply_max, envelope and header taken off.
constexpr std::size_t kReadyErrorBytes = 300;
// An answer held back in a batch of slow handlers goes out after about this many cycles (10-20 us).
constexpr std::uint64_t kHoldCycles = 40'000;
// The first size of the builders; they grow to the largest message and stay.
constexpr std::size_t kBuilderBytes = 4096;

std::string_view cut(std::string_view text, std::size_t bytes) {
    return text.substr(0, bytes);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::attach(Plugin& plugin,
                                                 const Identity& identity,
                                                 UniqueFd control) {
    HF_ASSIGN(Attachment attachment, receive_attachment(control.get()));
    std::unique_ptr<Session> out(
        new Session(plugin, identity, std::move(control), std::move(attachment)));
    HF_TRY(out->open_loop());
    out->greet();
    return out;
}

Session::Session(Plugin& plugin, Identity identity, UniqueFd control, Attachment attachment)
    : plugin_(plugin),
      identity_(std::move(identity)),
      control_(std::move(control)),
      extras_(std::move(attachment.extras)),
      end_(std::move(attachment.parts)),
      checker_(abi::From::Supervisor, identity_.kind, attachment.facts_in.generation),
      generation_(attachment.facts_in.generation),
      notify_fill_max_(attachment.facts_out.ring_bytes / 4),
      request_fill_max_(attachment.facts_out.ring_bytes - attachment.facts_out.answer_bytes -
                        attachment.facts_out.record_max),
      credit_bytes_(attachment.facts_in.answer_credit),
      builder_(kBuilderBytes),
      log_builder_(kBuilderBytes) {}

Session::~Session() = default;

Result<void> Session::open_loop() {
    // A bell whose hearer died must not end us before we saw the socket hang up.
    ::signal(SIGPIPE, SIG_IGN);
    epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    post_bell_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!epoll_.valid() || !post_bell_.valid())
        return fail_errno(errno, "cannot make the plugin's event loop");
    for (const int fd : {control_.get(), end_.bell_fd(), post_bell_.get()}) {
        epoll_event event{};
        event.events = EPOLLIN | EPOLLRDHUP;
        // Edge-triggered: each ring wakes once and need not be read each time (endpoint.hpp, awake()).
        if (fd == end_.bell_fd()) event.events |= EPOLLET;
        // What comes there is taken when a record names it; only its end is news.
        if (fd == control_.get()) event.events = EPOLLRDHUP;
        event.data.fd = fd;
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
            return fail_errno(errno, "cannot watch the link's descriptors");
    }
    return {};
}

void Session::greet() {
    auto& fbb = builder();
    const auto name = fbb.CreateString(identity_.name);
    const auto version = fbb.CreateString(identity_.version);
    const auto policies = fbb.CreateVectorOfStrings(identity_.policies);
    const auto capabilities = fbb.CreateVectorOfStrings(identity_.capabilities);
    const auto sent = notify(abi::CreateGreet(fbb,
                                              kSchemaMinorMin,
                                              kSchemaMinorMax,
                                              identity_.kind,
                                              name,
                                              version,
                                              policies,
                                              capabilities));
    if (!sent) blame_plugin("its greeting does not fit the link: " + sent.error().message);
    end_.flush();
}

// ---- sending

BytesView Session::finish(flatbuffers::FlatBufferBuilder& fbb,
                          abi::Body type,
                          flatbuffers::Offset<void> body,
                          std::uint64_t reply_to,
                          std::int64_t deadline_ns) {
    fbb.Finish(
        abi::CreateEnvelope(fbb, seq_ + 1, reply_to, generation_, deadline_ns, 0, type, body),
        abi::EnvelopeIdentifier());
    return {fbb.GetBufferPointer(), fbb.GetSize()};
}

bool Session::write(abi::Body type,
                    std::uint64_t req_id,
                    BytesView payload,
                    std::uint64_t fill_max) {
    const layout::RecordHeader header{
        static_cast<std::uint32_t>(payload.size()), static_cast<std::uint16_t>(type), 0, req_id};
    if (!end_.out().write(header, payload, fill_max)) {
        if (end_.out().fault() != ring::Fault::None)
            blame_supervisor(ring::text_of(end_.out().fault()));
        return false;
    }
    ++seq_;
    return true;
}

std::uint64_t Session::carry(int fd, std::uint64_t bytes) {
    carried_ = {++last_token_, bytes, fd};
    return carried_.token;
}

void Session::send_reply(std::uint64_t req_id, abi::Body type, flatbuffers::Offset<void> body) {
    const ring::Carried carried = std::exchange(carried_, {});
    const ring::OpenRequest* open = asked_.find(req_id);
    if (open == nullptr)
        blame_plugin("request " + std::to_string(req_id) + " is answered twice or was never asked");
    const abi::MessageTraits& traits = abi::traits_of(static_cast<abi::Body>(open->type));
    if (traits.reply != type)
        blame_plugin(std::string(traits.name) + " is answered by " + abi::traits_of(type).name);
    const BytesView payload = finish(builder_, type, body, req_id, 0);
    if (layout::record_bytes(payload.size()) > open->reserved)
        blame_plugin("the answer to " + std::string(traits.name) + " takes " +
                     std::to_string(layout::record_bytes(payload.size())) +
                     " bytes, its reply_max is " + std::to_string(traits.reply_max));
    if (carried.token != 0 && ring::send_body(control_.get(), carried) == ring::BodySent::Full) {
        // The supervisor takes the earlier ones with the records that name them: they must be out before this waits.
        end_.flush();
        // Its record must not go without it; the supervisor would end this process with fewer words.
        if (ring::send_body(control_.get(), carried, true) == ring::BodySent::Full)
            blame_plugin("the system passes on no descriptor for the large body of an answer");
    }
    // The asker reserved the room; it can only be missing when the asker broke its own sum.
    if (!write(type, 0, payload, ~std::uint64_t{0}))
        blame_supervisor("no room for a reserved answer");
    asked_.erase(req_id);
}

Result<void> Session::send_notify(abi::Body type, flatbuffers::Offset<void> body) {
    if (std::exchange(carried_, {}).token != 0)
        blame_plugin(std::string(abi::traits_of(type).name) + " carries no large body");
    const BytesView payload = finish(builder_, type, body, 0, 0);
    if (sizeof(layout::RecordHeader) + payload.size() > kRecordBytesMax)
        return fail(Code::Invalid,
                    std::string(abi::traits_of(type).name) + " takes " +
                        std::to_string(payload.size()) + " bytes; a record holds " +
                        std::to_string(kRecordBytesMax));
    if (!write(type, 0, payload, notify_fill_max_)) {
        starved_ = true;
        return fail(Code::Busy, "the link is full");
    }
    return {};
}

Result<std::uint64_t> Session::send_request(abi::Body type,
                                            flatbuffers::Offset<void> body,
                                            std::int64_t deadline_ns) {
    const ring::Carried carried = std::exchange(carried_, {});
    const abi::MessageTraits& traits = abi::traits_of(type);
    const std::uint32_t reserve = layout::reserve_bytes(traits.reply_max);
    if (reserve > credit_bytes_ - credit_used_)
        return fail(Code::Busy, "no credit for another answer");
    const BytesView payload = finish(builder_, type, body, 0, deadline_ns);
    if (sizeof(layout::RecordHeader) + payload.size() > kRecordBytesMax)
        return fail(Code::Invalid,
                    std::string(traits.name) + " takes " + std::to_string(payload.size()) +
                        " bytes; a record holds " + std::to_string(kRecordBytesMax));
    // What is sent beside the ring must not be there without its record.
    if (carried.token != 0 && (!end_.out().fits(payload.size(), request_fill_max_) ||
                               ring::send_body(control_.get(), carried) == ring::BodySent::Full)) {
        starved_ = true;
        return fail(Code::Busy, "the link is full");
    }
    // Space that was read must be back with the supervisor before it can see a request that counts on it.
    if (!write(type, last_req_id_ + 1, payload, request_fill_max_)) {
        starved_ = true;
        return fail(Code::Busy, "the link is full");
    }
    ++last_req_id_;
    credit_used_ += reserve;
    ours_.insert({last_req_id_, reserve, static_cast<std::uint16_t>(type), 0});
    return last_req_id_;
}

Result<void> Session::send_envelope(std::span<std::uint8_t> bytes) {
    // Aligned for the verifier, whatever the binding's allocator gave.
    alignas(64) thread_local std::array<std::uint8_t, kRecordBytesMax> copy;
    if (bytes.size() + sizeof(layout::RecordHeader) > copy.size() ||
        bytes.size() < sizeof(std::uint64_t))
        return fail(Code::Invalid, "an envelope has 8 to 65520 bytes");
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    flatbuffers::Verifier verifier(copy.data(), bytes.size(), kVerifyDepthMax, 4096);
    if (!abi::VerifyEnvelopeBuffer(verifier))
        return fail(Code::Invalid, "the bytes are no envelope of this schema");
    const abi::Envelope* envelope = abi::GetEnvelope(copy.data());
    const abi::Body type = envelope->body_type();
    const abi::MessageTraits& traits = abi::traits_of(type);
    if (envelope->body() == nullptr ||
        (traits.from != abi::From::Plugin && traits.from != abi::From::Both))
        return fail(Code::Invalid, "the message is not one that a plugin sends");
    if (traits.request) return fail(Code::Invalid, "requests are not offered to bindings");
    auto* table = flatbuffers::GetMutableRoot<flatbuffers::Table>(copy.data());
    if (envelope->seq() == 0 || envelope->generation() == 0 ||
        !table->SetField<std::uint64_t>(abi::Envelope::VT_SEQ, seq_ + 1, 0) ||
        !table->SetField<std::uint64_t>(abi::Envelope::VT_GENERATION, generation_, 0))
        return fail(Code::Invalid,
                    "the envelope leaves no room for seq and generation: set both to 1");
    const BytesView payload{copy.data(), bytes.size()};
    if (!traits.answer) {
        if (envelope->reply_to() != 0)
            return fail(Code::Invalid, "a one-way message answers nothing");
        if (write(type, 0, payload, notify_fill_max_)) return {};
        starved_ = true;
        return fail(Code::Busy, "the link is full");
    }
    const ring::OpenRequest* open = asked_.find(envelope->reply_to());
    if (open == nullptr) return fail(Code::Invalid, "reply_to names no open request");
    if (abi::traits_of(static_cast<abi::Body>(open->type)).reply != type)
        return fail(Code::Invalid, "the answer is not of the type that the request names");
    if (layout::record_bytes(payload.size()) > open->reserved)
        return fail(Code::Invalid, "the answer is larger than its request's reply_max");
    if (!write(type, 0, payload, ~std::uint64_t{0}))
        blame_supervisor("no room for a reserved answer");
    asked_.erase(envelope->reply_to());
    return {};
}

void Session::log(abi::LogLevel level, std::string_view text) {
    std::string line(cut(text, kLogBytesMax));
    if (dropped_logs_ > 0)
        line += " (" + std::to_string(dropped_logs_) + " earlier lines were dropped)";
    log_builder_.Clear();
    const auto offset = abi::CreateLog(log_builder_, level, log_builder_.CreateString(line));
    const BytesView payload = finish(log_builder_, abi::Body::Log, offset.Union(), 0, 0);
    if (write(abi::Body::Log, 0, payload, notify_fill_max_))
        dropped_logs_ = 0;
    else
        ++dropped_logs_;
}

// ---- receiving

void Session::drain() {
    end_.awake();
    const bool was_starved = std::exchange(starved_, false);
    layout::RecordHeader header{};
    BytesView payload;
    std::size_t handled = 0;
    std::uint64_t last_flush = __builtin_ia32_rdtsc();
    while (handled < kBatchRecords && !exiting_) {
        const ring::Consumer::Next next = end_.in().next(header, payload);
        if (next == ring::Consumer::Next::Empty) break;
        if (next == ring::Consumer::Next::Faulty)
            blame_supervisor(ring::text_of(end_.in().fault()));
        const abi::Envelope* envelope = checker_.check(header, payload);
        if (envelope == nullptr) blame_supervisor(verify::text_of(checker_.reason()));
        record_ = payload;
        handle_record(header, *envelope);
        ++handled;
        const std::uint64_t now = __builtin_ia32_rdtsc();
        if (now - last_flush > kHoldCycles) {
            end_.flush();
            last_flush = now;
        }
    }
    batch_end(handled > 0 || was_starved);
}

void Session::batch_end(bool handled) {
    body_.reset();
    if (handled) {
        layout::store_relaxed(end_.own().report.progress, ++progress_);
        if (configured_) plugin_.batch_done();
    }
    check_shed();
    end_.flush();
}

void Session::handle_record(const layout::RecordHeader& header, const abi::Envelope& envelope) {
    const Message message{header.req_id,
                          envelope.reply_to(),
                          envelope.trace_id(),
                          envelope.deadline_ns(),
                          envelope.body_type(),
                          envelope.body()};
    switch (message.type) {
        case abi::Body::Welcome:
            if (std::exchange(welcomed_, true)) blame_supervisor("a second Welcome");
            if (const auto minor = message.as<abi::Welcome>().minor();
                minor < kSchemaMinorMin || minor > kSchemaMinorMax)
                blame_supervisor("a schema minor that was not offered");
            if (const auto* node = message.as<abi::Welcome>().node_id(); node != nullptr)
                node_id_ = node->str();
            return;
        case abi::Body::Stop:
            leave(0);
            return;
        case abi::Body::Shed:
            shed_deadline_ns_ = message.as<abi::Shed>().deadline_ns();
            if (!std::exchange(shedding_, true)) plugin_.shed_started(shed_deadline_ns_);
            return;
        default:
            break;
    }
    if (!welcomed_) blame_supervisor("a message before Welcome");
    receive_body(message);
    if (message.req_id != 0) {
        handle_request(message);
        return;
    }
    if (!configured_) blame_supervisor("a message before Configure");
    if (message.reply_to != 0)
        handle_answer(message);
    else
        plugin_.handle(message);
}

void Session::receive_body(const Message& message) {
    body_.reset();
    std::uint64_t token = 0;
    std::uint64_t bytes = 0;
    if (message.type == abi::Body::Deliver) {
        token = message.as<abi::Deliver>().body_token();
        bytes = message.as<abi::Deliver>().body_bytes();
    } else if (message.type == abi::Body::Reply) {
        token = message.as<abi::Reply>().body_token();
        bytes = message.as<abi::Reply>().body_bytes();
    } else if (message.type == abi::Body::PeerCall) {
        token = message.as<abi::PeerCall>().body_token();
        bytes = message.as<abi::PeerCall>().body_bytes();
    } else if (message.type == abi::Body::Put) {
        token = message.as<abi::Put>().body_token();
        bytes = message.as<abi::Put>().body_bytes();
    } else if (message.type == abi::Body::Activate) {
        token = message.as<abi::Activate>().body_token();
        bytes = message.as<abi::Activate>().body_bytes();
    }
    if (token == 0) return;
    if (const char* broken = inbox_.take(control_.get(), token, bytes, body_))
        blame_supervisor(broken);
}

void Session::handle_request(const Message& message) {
    if (asked_.find(message.req_id) != nullptr)
        blame_supervisor("a request id that is open already");
    const abi::MessageTraits& traits = abi::traits_of(message.type);
    asked_.insert({message.req_id,
                   layout::reserve_bytes(traits.reply_max),
                   static_cast<std::uint16_t>(message.type),
                   0});
    if (message.type == abi::Body::Configure) {
        if (configured_) blame_supervisor("a second Configure");
        configure(message);
        return;
    }
    if (!configured_) blame_supervisor("a request before Configure");
    layout::store_relaxed(end_.own().report.current, message.req_id);
    current_touched_ = false;
    plugin_.handle(message);
    // A plugin that works on after handle() says so itself, by set_current.
    if (!current_touched_) layout::store_relaxed(end_.own().report.current, std::uint64_t{0});
}

void Session::handle_answer(const Message& message) {
    const ring::OpenRequest* open = ours_.find(message.reply_to);
    if (open == nullptr) blame_supervisor("an answer to no open request");
    if (abi::traits_of(static_cast<abi::Body>(open->type)).reply != message.type)
        blame_supervisor("an answer of the wrong type");
    credit_used_ -= open->reserved;
    ours_.erase(message.reply_to);
    plugin_.handle(message);
}

void Session::configure(const Message& message) {
    Result<void> result = plugin_.configure(message.as<abi::Configure>(), *this);
    if (result)
        result =
            lock_down(identity_.kind, identity_.name.c_str(), &end_.own().report.forbidden_syscall);
    auto& fbb = builder();
    if (result) {
        configured_ = true;
        reply(message.req_id, abi::CreateReady(fbb, true));
        return;
    }
    const std::string& why = result.error().message;
    std::fprintf(stderr, "%s: %s\n", identity_.name.c_str(), why.c_str());
    const auto text = cut(why, kReadyErrorBytes);
    const auto error = fbb.CreateString(text.data(), text.size());
    reply(message.req_id, abi::CreateReady(fbb, false, error));
    leave(1);
}

// ---- the loop's parts

void Session::poll(int timeout_ms) {
    std::array<epoll_event, 16> events{};
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    for (int i = 0; i < count && !exiting_; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == end_.bell_fd()) continue;  // drain() empties it
        if (fd == post_bell_.get()) {
            run_posted();
        } else if (fd == control_.get()) {
            // The supervisor is gone.
            ::_exit(0);
        } else if (const auto found = watched_.find(fd); found != watched_.end()) {
            const auto fn = found->second;  // stays alive if the call unwatches itself
            (*fn)();
        }
    }
}

bool Session::work() {
    return configured_ && !exiting_ && plugin_.work();
}

bool Session::before_block() {
    if (exiting_) return false;
    // A gateway waits for the network as much as for us: it looks out only for answers.
    const bool expecting = identity_.kind != abi::Kind::Gateway || ours_.size() > 0;
    if (!end_.before_block(expecting, starved_)) return false;
    if (configured_) plugin_.sleeps();
    return true;
}

int Session::wait_ms() const {
    if (!shedding_ || shed_deadline_ns_ == 0) return -1;
    constexpr std::int64_t kNsPerMs = 1'000'000;
    const std::int64_t left = (shed_deadline_ns_ - monotonic_ns()) / kNsPerMs + 1;
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void Session::check_shed() {
    if (!shedding_ || exiting_) return;
    const bool late = shed_deadline_ns_ != 0 && monotonic_ns() >= shed_deadline_ns_;
    if (late || (asked_.size() == 0 && plugin_.shed_done())) leave(0);
}

void Session::leave(int code) {
    exiting_ = true;
    exit_code_ = code;
    end_.flush();
}

void Session::set_current(std::uint64_t req_id) {
    current_touched_ = true;
    layout::store_relaxed(end_.own().report.current, req_id);
    layout::store_relaxed(end_.own().report.progress, ++progress_);
}

void Session::watch(int fd, std::function<void()> fn) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    const bool known = watched_.contains(fd);
    watched_[fd] = std::make_shared<std::function<void()>>(std::move(fn));
    if (::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
        blame_plugin("descriptor " + std::to_string(fd) +
                     " cannot be watched: " + std::strerror(errno));
}

void Session::unwatch(int fd) {
    if (watched_.erase(fd) > 0) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Session::post(std::function<void()> fn) {
    {
        const std::lock_guard lock(posted_mutex_);
        posted_.push_back(std::move(fn));
    }
    const std::uint64_t one = 1;
    (void)!::write(post_bell_.get(), &one, sizeof(one));
}

void Session::run_posted() {
    std::uint64_t count = 0;
    (void)!::read(post_bell_.get(), &count, sizeof(count));
    std::vector<std::function<void()>> due;
    {
        const std::lock_guard lock(posted_mutex_);
        due.swap(posted_);
    }
    for (const auto& fn : due) fn();
}

int Session::passed_fd(std::string_view name) const {
    for (const auto& [known, fd] : extras_)
        if (known == name) return fd.get();
    return -1;
}

void Session::blame_supervisor(const char* what) const {
    std::fprintf(
        stderr, "%s: the supervisor broke the link's rules: %s\n", identity_.name.c_str(), what);
    ::_exit(70);  // EX_SOFTWARE
}

void Session::blame_plugin(const std::string& what) const {
    std::fprintf(stderr, "%s: a bug in this plugin: %s\n", identity_.name.c_str(), what.c_str());
    std::abort();
}

}  // namespace hf::sdk
