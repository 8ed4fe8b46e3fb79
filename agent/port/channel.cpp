// The supervisor's end of a link. What it must never do: believe a word of the peer's segment that it has not checked in
// a local, block on anything the peer can hold up, or keep more for a slow peer than the bounds below.
#include "agent/port/channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/layout/atomics.hpp"
#include "abi/layout/attach.hpp"
#include "abi/ring/endpoint.hpp"
#include "abi/ring/open_table.hpp"
#include "abi/verify/verify.hpp"
#include "agent/port/segments.hpp"

namespace hf::port {

namespace {

// What may wait in private memory for one slow instance: 4096 requests are 40 ms of the fastest link, and 8 MiB are 128
// records of the largest size, more than its rings hold.
constexpr std::size_t kQueueRecordsMax = 4096;
constexpr std::size_t kQueueBytesMax = 8U * 1024U * 1024U;
// The first size of the builder; it grows to the largest message and stays.
constexpr std::size_t kBuilderBytes = 4096;

// State of an open request of ours.
enum State : std::uint8_t { kSent, kQueued, kAbandoned };

// How much of a ring its reader may reserve for answers. A gateway asks much and is asked little: most of S is for answers
// to it, most of P for its requests. A runtime asks in mid-event too. Everybody else is mostly asked.
std::uint32_t answer_bytes_to_plugin(std::uint32_t ring, abi::Kind kind) {
    if (kind == abi::Kind::Gateway) return ring / 4 * 3;
    return kind == abi::Kind::Runtime ? ring / 2 : ring / 4;
}
std::uint32_t answer_bytes_from_plugin(std::uint32_t ring, abi::Kind kind) {
    return kind == abi::Kind::Gateway ? ring / 4 : ring / 4 * 3;
}

struct Pipe {
    UniqueFd read;
    UniqueFd write;
};

Result<Pipe> make_bell() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        return fail_errno(errno, "cannot make a bell");
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// What the other end of the link is sent; ours no longer once it is.
struct PluginParts {
    UniqueFd to_plugin;
    UniqueFd from_plugin;
    UniqueFd hear;
    UniqueFd ring;
    UniqueFd control;
    layout::AttachMessage message{};
};

class LinkChannel final : public Channel {
public:
    LinkChannel(ring::EndpointParts parts,
                PluginParts plugin,
                UniqueFd control,
                const layout::ConstLine& to_plugin,
                const layout::ConstLine& from_plugin,
                abi::Kind kind)
        : end_(std::move(parts)),
          plugin_(std::move(plugin)),
          control_(std::move(control)),
          checker_(abi::From::Plugin, kind, to_plugin.generation),
          generation_(to_plugin.generation),
          kind_(kind),
          fill_max_(to_plugin.ring_bytes - to_plugin.answer_bytes - to_plugin.record_max),
          peer_credit_(to_plugin.answer_bytes),
          credit_(from_plugin.answer_bytes),
          final_records_max_(from_plugin.ring_bytes / layout::kRecordAlign),
          builder_(kBuilderBytes) {}

    UniqueFd take_plugin_end() override { return std::move(plugin_.control); }
    Result<void> attach(const std::vector<std::pair<std::string, int>>& extra) override;
    [[nodiscard]] int bell_fd() const override { return end_.bell_fd(); }
    [[nodiscard]] int control_fd() const override { return control_.get(); }

    flatbuffers::FlatBufferBuilder& builder() override {
        builder_.Clear();
        return builder_;
    }
    void flush() override {
        pump();
        end_.flush();
    }
    Result<bool> drain(std::size_t budget,
                       const std::function<void(const Received&)>& handler) override;
    Result<void> drain_final(const std::function<void(const Received&)>& handler) override;
    [[nodiscard]] bool before_block() override {
        if (failed_) return true;
        pump();
        return end_.before_block(expecting(), starved());
    }

    [[nodiscard]] std::vector<std::pair<std::uint64_t, abi::Body>> open_requests() const override;
    void abandon(std::uint64_t req_id) override;
    [[nodiscard]] std::uint64_t progress() const override {
        return layout::load_relaxed(end_.peer().report.progress);
    }
    [[nodiscard]] std::uint64_t current_request() const override {
        return layout::load_relaxed(end_.peer().report.current);
    }
    [[nodiscard]] unsigned forbidden_syscall() const override {
        return layout::load_relaxed(end_.peer().report.forbidden_syscall);
    }
    [[nodiscard]] Usage usage() const override;

    // For before_block_all.
    [[nodiscard]] bool failed() const { return failed_.has_value(); }
    [[nodiscard]] bool expecting() const {
        return table_.size() > 0 || kind_ == abi::Kind::Gateway;
    }
    [[nodiscard]] bool starved() const { return !queue_.empty(); }
    [[nodiscard]] ring::Endpoint& end() { return end_; }

protected:
    Sent send(abi::Body type,
              flatbuffers::Offset<void> body,
              std::uint64_t req_id,
              std::uint64_t reply_to,
              std::int64_t deadline_ns,
              std::uint64_t trace_id) override;

private:
    struct Waiting {
        std::uint64_t req_id;
        abi::Body type;
        Bytes payload;
    };

    Sent send_answer(abi::Body type, BytesView payload, std::uint64_t reply_to);
    Sent send_in_order(abi::Body type, BytesView payload, std::uint64_t req_id);
    bool write(abi::Body type, std::uint64_t req_id, BytesView payload, std::uint64_t fill_max);
    void pump();
    bool pump_one();
    Result<std::size_t> take(std::size_t budget,
                             const std::function<void(const Received&)>& handler);
    enum class Accepted : std::uint8_t { Yes, Drop, Fault };
    Accepted accept(const Received& received, std::size_t payload_bytes);
    Accepted accept_answer(const Received& received, std::size_t payload_bytes);
    Accepted accept_request(const Received& received);
    Accepted refuse(const char* rule) {
        rule_ = rule;
        return Accepted::Fault;
    }
    Error fault(const char* rule) {
        failed_ = fail(Code::Corrupt, rule);
        return *failed_;
    }

    mutable ring::Endpoint end_;
    PluginParts plugin_;
    UniqueFd control_;
    verify::Checker checker_;
    std::uint64_t generation_;
    abi::Kind kind_;
    std::uint64_t
        fill_max_;  // of S for requests and one-way messages: leaves free what answers may take
    std::uint32_t peer_credit_;  // of S: what answers to the instance may take
    std::uint32_t peer_credit_used_ = 0;
    std::uint32_t credit_;  // of P: what answers to us may take
    std::uint32_t credit_used_ = 0;
    std::size_t final_records_max_;  // no ring holds more
    flatbuffers::FlatBufferBuilder builder_;
    std::uint64_t seq_ = 0;
    std::uint64_t last_peer_request_ = 0;
    ring::OpenTable table_;  // requests of ours
    ring::OpenTable asked_;  // requests of the instance
    std::deque<Waiting> queue_;
    std::size_t queue_bytes_ = 0;
    std::size_t abandoned_ = 0;
    std::uint64_t late_answers_ = 0;
    const char* rule_ = "";
    std::optional<Error> failed_;
};

Result<void> LinkChannel::attach(const std::vector<std::pair<std::string, int>>& extra) {
    HF_CHECK(plugin_.ring.valid(), "a link is attached once");
    layout::AttachMessage& message = plugin_.message;
    if (extra.size() > layout::kExtraFdsMax)
        return fail(Code::Invalid, "an instance is given at most 16 descriptors besides its link");
    std::array<int, layout::kLinkFds + layout::kExtraFdsMax> fds{
        plugin_.to_plugin.get(), plugin_.from_plugin.get(), plugin_.hear.get(), plugin_.ring.get()};
    message.extra_count = static_cast<std::uint16_t>(extra.size());
    for (std::size_t i = 0; i < extra.size(); ++i) {
        if (extra[i].first.size() >= layout::kExtraNameBytes)
            return fail(Code::Invalid,
                        "the name of a passed descriptor is too long: " + extra[i].first);
        std::memcpy(message.extra_names[i], extra[i].first.data(), extra[i].first.size());
        fds[layout::kLinkFds + i] = extra[i].second;
    }
    const std::size_t fd_bytes = (layout::kLinkFds + extra.size()) * sizeof(int);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(fds))> control{};
    iovec bytes{&message, sizeof(message)};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fd_bytes);
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fd_bytes);
    std::memcpy(CMSG_DATA(part), fds.data(), fd_bytes);
    if (::sendmsg(control_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(sizeof(message)))
        return fail_errno(errno, "cannot send the attach message");
    // The mappings stay; of the descriptors only the bells' own ends and the control socket do.
    plugin_.to_plugin.reset();
    plugin_.from_plugin.reset();
    plugin_.hear.reset();
    plugin_.ring.reset();
    return {};
}

// ---- sending

Sent LinkChannel::send(abi::Body type,
                       flatbuffers::Offset<void> body,
                       std::uint64_t req_id,
                       std::uint64_t reply_to,
                       std::int64_t deadline_ns,
                       std::uint64_t trace_id) {
    builder_.Finish(
        abi::CreateEnvelope(
            builder_, seq_ + 1, reply_to, generation_, deadline_ns, trace_id, type, body),
        abi::EnvelopeIdentifier());
    const BytesView payload{builder_.GetBufferPointer(), builder_.GetSize()};
    if (sizeof(layout::RecordHeader) + payload.size() > kRecordBytesMax) return Sent::TooLarge;
    if (reply_to != 0) return send_answer(type, payload, reply_to);
    return send_in_order(type, payload, req_id);
}

Sent LinkChannel::send_answer(abi::Body type, BytesView payload, std::uint64_t reply_to) {
    const ring::OpenRequest* open = asked_.find(reply_to);
    HF_CHECK(open != nullptr, "an answer to a request that the instance has not open");
    HF_CHECK(abi::traits_of(static_cast<abi::Body>(open->type)).reply == type,
             "an answer of the wrong type");
    if (layout::record_bytes(payload.size()) > open->reserved) return Sent::TooLarge;
    peer_credit_used_ -= open->reserved;
    asked_.erase(reply_to);
    // An instance that keeps its sum has left the room.
    return write(type, 0, payload, ~std::uint64_t{0}) ? Sent::Now : Sent::Busy;
}

Sent LinkChannel::send_in_order(abi::Body type, BytesView payload, std::uint64_t req_id) {
    const abi::MessageTraits& traits = abi::traits_of(type);
    HF_CHECK((req_id != 0) == traits.request, "a request has an id and nothing else has one");
    HF_CHECK(req_id == 0 || table_.find(req_id) == nullptr, "a request id that is open already");
    const std::uint32_t reserve = traits.request ? layout::reserve_bytes(traits.reply_max) : 0;
    const bool now = queue_.empty() && reserve <= credit_ - credit_used_ &&
                     write(type, req_id, payload, fill_max_);
    if (now) {
        credit_used_ += reserve;
    } else {
        if (queue_.size() >= kQueueRecordsMax || queue_bytes_ + payload.size() > kQueueBytesMax)
            return Sent::Busy;
        queue_bytes_ += payload.size();
        queue_.push_back({req_id, type, Bytes(payload.begin(), payload.end())});
    }
    if (req_id != 0)
        table_.insert({req_id,
                       reserve,
                       static_cast<std::uint16_t>(type),
                       static_cast<std::uint8_t>(now ? kSent : kQueued)});
    return now ? Sent::Now : Sent::Queued;
}

bool LinkChannel::write(abi::Body type,
                        std::uint64_t req_id,
                        BytesView payload,
                        std::uint64_t fill_max) {
    const layout::RecordHeader header{
        static_cast<std::uint32_t>(payload.size()), static_cast<std::uint16_t>(type), 0, req_id};
    if (!end_.out().write(header, payload, fill_max)) {
        if (fill_max == ~std::uint64_t{0} && end_.out().fault() == ring::Fault::None && !failed_)
            failed_ =
                fail(Code::Corrupt, "no room for an answer that the instance should have reserved");
        return false;
    }
    ++seq_;
    return true;
}

void LinkChannel::pump() {
    while (!queue_.empty() && pump_one()) {
    }
}

// Sends the first of the queue, or drops it when its caller gave up. False: it has to wait.
bool LinkChannel::pump_one() {
    Waiting& first = queue_.front();
    ring::OpenRequest* open = first.req_id != 0 ? table_.find(first.req_id) : nullptr;
    if (first.req_id == 0 || open != nullptr) {
        const std::uint32_t reserve = open != nullptr ? open->reserved : 0;
        if (reserve > credit_ - credit_used_) return false;
        // Answers may have overtaken it: its number is the next one only now.
        // SAFETY: the bytes are a finished envelope of our own, and vectors are aligned for any scalar.
        auto* table = flatbuffers::GetMutableRoot<flatbuffers::Table>(first.payload.data());
        HF_CHECK(table->SetField<std::uint64_t>(abi::Envelope::VT_SEQ, seq_ + 1, 0),
                 "every envelope has a number");
        if (!write(first.type, first.req_id, first.payload, fill_max_)) return false;
        if (open != nullptr) {
            open->state = kSent;
            credit_used_ += reserve;
        }
    }
    queue_bytes_ -= first.payload.size();
    queue_.pop_front();
    return true;
}

// ---- receiving

Result<std::size_t> LinkChannel::take(std::size_t budget,
                                      const std::function<void(const Received&)>& handler) {
    if (failed_) return *failed_;
    end_.awake();
    layout::RecordHeader header{};
    BytesView payload;
    std::size_t count = 0;
    while (count < budget) {
        const ring::Consumer::Next next = end_.in().next(header, payload);
        if (next == ring::Consumer::Next::Empty) break;
        if (next == ring::Consumer::Next::Faulty) return fault(ring::text_of(end_.in().fault()));
        const abi::Envelope* envelope = checker_.check(header, payload);
        if (envelope == nullptr) return fault(verify::text_of(checker_.reason()));
        const Received received{header.req_id,
                                envelope->reply_to(),
                                envelope->trace_id(),
                                envelope->deadline_ns(),
                                envelope->body_type(),
                                envelope->body()};
        ++count;
        switch (accept(received, payload.size())) {
            case Accepted::Yes:
                handler(received);
                break;
            case Accepted::Drop:
                break;
            case Accepted::Fault:
                return fault(rule_);
        }
        if (failed_) return *failed_;
    }
    if (end_.out().fault() != ring::Fault::None) return fault(ring::text_of(end_.out().fault()));
    return count;
}

Result<bool> LinkChannel::drain(std::size_t budget,
                                const std::function<void(const Received&)>& handler) {
    HF_ASSIGN(const std::size_t count, take(budget, handler));
    pump();
    return count >= budget && end_.in().visible();
}

Result<void> LinkChannel::drain_final(const std::function<void(const Received&)>& handler) {
    HF_ASSIGN(const std::size_t count, take(final_records_max_, handler));
    (void)count;
    return {};
}

LinkChannel::Accepted LinkChannel::accept(const Received& received, std::size_t payload_bytes) {
    if (received.reply_to != 0) return accept_answer(received, payload_bytes);
    if (received.req_id != 0) return accept_request(received);
    return Accepted::Yes;
}

LinkChannel::Accepted LinkChannel::accept_answer(const Received& received,
                                                 std::size_t payload_bytes) {
    const ring::OpenRequest* open = table_.find(received.reply_to);
    if (open == nullptr || open->state == kQueued) return refuse("an answer to no open request");
    if (abi::traits_of(static_cast<abi::Body>(open->type)).reply != received.type)
        return refuse("an answer of the wrong type");
    if (layout::record_bytes(payload_bytes) > open->reserved)
        return refuse("an answer larger than its request's reply_max");
    const bool wanted = open->state == kSent;
    credit_used_ -= open->reserved;
    table_.erase(received.reply_to);
    if (wanted) return Accepted::Yes;
    --abandoned_;
    ++late_answers_;
    return Accepted::Drop;
}

LinkChannel::Accepted LinkChannel::accept_request(const Received& received) {
    if (received.req_id <= last_peer_request_) return refuse("a request id that does not ascend");
    const std::uint32_t reserve = layout::reserve_bytes(abi::traits_of(received.type).reply_max);
    if (reserve > peer_credit_ - peer_credit_used_)
        return refuse("more requests than the credit for their answers");
    last_peer_request_ = received.req_id;
    peer_credit_used_ += reserve;
    asked_.insert({received.req_id, reserve, static_cast<std::uint16_t>(received.type), 0});
    return Accepted::Yes;
}

// ---- the rest

std::vector<std::pair<std::uint64_t, abi::Body>> LinkChannel::open_requests() const {
    std::vector<std::pair<std::uint64_t, abi::Body>> out;
    out.reserve(table_.size());
    table_.for_each([&](const ring::OpenRequest& open) {
        if (open.state != kAbandoned) out.emplace_back(open.id, static_cast<abi::Body>(open.type));
    });
    return out;
}

void LinkChannel::abandon(std::uint64_t req_id) {
    ring::OpenRequest* open = table_.find(req_id);
    if (open == nullptr) return;
    if (open->state == kQueued) {
        // Its bytes leave the queue when its turn comes.
        table_.erase(req_id);
    } else if (open->state == kSent) {
        // The instance may still answer: the room in P stays reserved.
        open->state = kAbandoned;
        ++abandoned_;
    }
}

Channel::Usage LinkChannel::usage() const {
    return {end_.out().used(),
            end_.in().used(),
            queue_.size(),
            queue_bytes_,
            table_.size() - abandoned_,
            late_answers_};
}

layout::ConstLine facts(std::uint32_t ring_bytes,
                        std::uint32_t answer_bytes,
                        std::uint64_t link_id,
                        std::uint64_t generation,
                        std::uint32_t spin_ns) {
    return {layout::kSegmentMagic,
            layout::kLayoutVersion,
            layout::kHeaderBytes,
            ring_bytes,
            link_id,
            generation,
            kRecordBytesMax,
            answer_bytes,
            spin_ns,
            0};
}

}  // namespace

bool Channel::before_block_all(std::span<Channel* const> channels) {
    std::uint32_t budget = 0;
    const auto link = [](Channel* channel) -> LinkChannel& {
        return static_cast<LinkChannel&>(*channel);  // the only class there is
    };
    const auto any_visible = [&] {
        for (Channel* channel : channels)
            if (!link(channel).failed() && link(channel).end().in().visible()) return true;
        return false;
    };
    for (Channel* channel : channels) channel->flush();
    if (any_visible()) return false;
    for (Channel* channel : channels) {
        LinkChannel& one = link(channel);
        if (!one.failed() && one.expecting() && one.end().spin_wanted())
            budget = std::max(budget, one.end().spin_policy().budget_ns());
    }
    if (budget > 0) {
        const ring::Spun spun = ring::spin(budget, any_visible);
        for (Channel* channel : channels) {
            LinkChannel& one = link(channel);
            if (one.failed() || !one.expecting()) continue;
            if (spun == ring::Spun::Preempted) one.end().spin_policy().preempted();
            if (spun == ring::Spun::Nothing) one.end().spin_policy().failed();
            if (spun == ring::Spun::Found && one.end().in().visible())
                one.end().spin_policy().succeeded();
        }
        if (spun == ring::Spun::Found) return false;
    }
    bool work = false;
    for (Channel* channel : channels)
        if (!link(channel).failed()) link(channel).end().fall_asleep(link(channel).starved());
    for (Channel* channel : channels)
        work = work || (!link(channel).failed() &&
                        link(channel).end().work_visible(link(channel).starved()));
    return !work;
}

Result<std::unique_ptr<Channel>> Channel::create(SegmentPool& pool,
                                                 const ChannelSizes& sizes,
                                                 std::uint64_t generation,
                                                 abi::Kind kind) {
    if (!layout::ring_size_allowed(sizes.to_plugin_bytes) ||
        !layout::ring_size_allowed(sizes.from_plugin_bytes))
        return fail(Code::Invalid, "a ring is a power of two from 512 KiB to 64 MiB");
    HF_CHECK(generation != 0, "generation 0 names nobody");
    HF_ASSIGN(SegmentPair pair, pool.state().take(sizes));
    HF_ASSIGN(Pipe to_plugin_bell, make_bell());
    HF_ASSIGN(Pipe from_plugin_bell, make_bell());
    std::array<int, 2> sockets{-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0)
        return fail_errno(errno, "cannot make a control socket");
    UniqueFd control(sockets[0]);

    const std::uint64_t link_id = pool.state().next_link_id();
    const std::uint32_t spin_ns = pool.state().spin_ns();
    const layout::ConstLine to_facts = facts(sizes.to_plugin_bytes,
                                             answer_bytes_to_plugin(sizes.to_plugin_bytes, kind),
                                             link_id,
                                             generation,
                                             spin_ns);
    const layout::ConstLine from_facts =
        facts(sizes.from_plugin_bytes,
              answer_bytes_from_plugin(sizes.from_plugin_bytes, kind),
              link_id,
              generation,
              spin_ns);
    std::memcpy(pair.to_plugin.data(), &to_facts, sizeof(to_facts));
    // P is read-only to us through its mapping; its seals still allow a write through the descriptor.
    if (::pwrite(pair.from_plugin_fd.get(), &from_facts, sizeof(from_facts), 0) !=
        static_cast<ssize_t>(sizeof(from_facts)))
        return fail_errno(errno, "cannot write the head of a segment");

    ring::EndpointParts parts;
    parts.own = std::move(pair.to_plugin);
    parts.peer = std::move(pair.from_plugin);
    parts.own_ring_bytes = sizes.to_plugin_bytes;
    parts.peer_ring_bytes = sizes.from_plugin_bytes;
    parts.ring = std::move(to_plugin_bell.write);
    parts.hear = std::move(from_plugin_bell.read);
    parts.spin_ns = spin_ns;
    parts.spin = pool.state().spin_allowed();

    PluginParts plugin;
    plugin.to_plugin = std::move(pair.to_plugin_fd);
    plugin.from_plugin = std::move(pair.from_plugin_fd);
    plugin.hear = std::move(to_plugin_bell.read);
    plugin.ring = std::move(from_plugin_bell.write);
    plugin.control = UniqueFd(sockets[1]);
    plugin.message.magic = layout::kAttachMagic;
    plugin.message.layout_version = layout::kLayoutVersion;
    plugin.message.to_plugin_bytes = sizes.to_plugin_bytes;
    plugin.message.from_plugin_bytes = sizes.from_plugin_bytes;
    plugin.message.link_id = link_id;
    plugin.message.generation = generation;
    return std::unique_ptr<Channel>(new LinkChannel(
        std::move(parts), std::move(plugin), std::move(control), to_facts, from_facts, kind));
}

}  // namespace hf::port
