// The attacks by name. Each is what a plugin taken over by somebody could do with its own segment, bells and socket.
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "abi/layout/atomics.hpp"
#include "tests/system/hostile/link.hpp"

namespace hf::hostile {

namespace {

constexpr std::size_t kTail = offsetof(layout::SegmentHeader, producer);
// Loops of one flood between two looks at the supervisor's records.
constexpr int kFloodBurst = 512;

using Attack = std::function<bool(Link&, const Plan&, std::uint64_t)>;

Bytes good_answer(Link& link, std::uint64_t request, const Lies& lies = {}) {
    link.builder.Clear();
    return link.finish(
        abi::Body::Placed, abi::CreatePlaced(link.builder, 0).Union(), request, lies);
}

bool answer(Link& link, std::uint64_t request, const Lies& lies = {}) {
    return link.write(abi::Body::Placed, 0, good_answer(link, request, lies));
}

bool log_line(Link& link, std::size_t bytes) {
    link.builder.Clear();
    const auto text = link.builder.CreateString(std::string(bytes, 'x'));
    return link.say(abi::CreateLog(link.builder, abi::LogLevel::Info, text));
}

std::uint64_t other_value(std::uint64_t now, std::uint64_t kind) {
    switch (kind) {
        case 0:
            return 0;
        case 1:
            return ~std::uint64_t{0};
        case 2:
            return now + 1;
        default:
            return std::random_device{}() * 0x9E3779B97F4A7C15ULL;
    }
}

void spoil_word(Link& link, const Plan& plan) {
    std::uint64_t& word = link.word(plan.at);
    layout::store_release(word, other_value(word, plan.value));
    link.ring_bell();
}

// A padding record at the tail and then another at the ring's start.
bool two_paddings(Link& link, const Plan&, std::uint64_t) {
    const std::uint64_t tail = link.tail();
    const std::uint64_t offset = tail & (link.ring_bytes - 1);
    const layout::RecordHeader padding{layout::kPadding, 0, 0, 0};
    std::memcpy(link.ring().data() + offset, &padding, sizeof(padding));
    std::memcpy(link.ring().data(), &padding, sizeof(padding));
    link.publish_tail(tail + (link.ring_bytes - offset) + sizeof(padding));
    return true;
}

bool padding_alone(Link& link, const Plan&, std::uint64_t) {
    const std::uint64_t offset = link.tail() & (link.ring_bytes - 1);
    link.raw_record({layout::kPadding, 0, 0, 0}, link.ring_bytes - offset);
    return true;
}

// The right bytes under a header whose length is off by `value` (as signed).
bool wrong_length(Link& link, const Plan& plan, std::uint64_t request) {
    const Bytes bytes = good_answer(link, request);
    const std::uint64_t tail = link.tail();
    const std::uint64_t offset = tail & (link.ring_bytes - 1);
    const auto length = static_cast<std::uint32_t>(bytes.size() + plan.value);
    const layout::RecordHeader header{length, static_cast<std::uint16_t>(abi::Body::Placed), 0, 0};
    std::memcpy(link.ring().data() + offset, &header, sizeof(header));
    std::memcpy(link.ring().data() + offset + sizeof(header), bytes.data(), bytes.size());
    link.publish_tail(tail + layout::record_bytes(bytes.size()));
    return true;
}

bool flip(Link& link, const Plan& plan, std::uint64_t request) {
    Bytes bytes = good_answer(link, request);
    std::uint8_t& byte = bytes[plan.at % bytes.size()];
    byte = static_cast<std::uint8_t>(plan.value == 2 ? byte + 1 : plan.value == 1 ? 0xFF : 0);
    return link.write(abi::Body::Placed, 0, bytes);
}

bool blob(Link& link, const Plan& plan, std::uint64_t) {
    return link.write(abi::Body::Placed, 0, Bytes(plan.at, static_cast<std::uint8_t>(plan.value)));
}

bool not_allowed(Link& link, const Plan&, std::uint64_t) {
    link.builder.Clear();
    const auto name = link.builder.CreateString("counter");
    const auto event = link.builder.CreateVector(Bytes(8, 0));
    return link.say(abi::CreateRequest(link.builder, name, name, event), 0, 1);
}

bool from_supervisor(Link& link, const Plan&, std::uint64_t) {
    link.builder.Clear();
    return link.say(abi::CreateWelcome(link.builder, 0, link.generation));
}

bool wrong_answer_type(Link& link, const Plan&, std::uint64_t request) {
    link.builder.Clear();
    return link.say(abi::CreateReady(link.builder, true), request);
}

// The header names one type, the envelope holds another.
bool two_types(Link& link, const Plan&, std::uint64_t request) {
    link.builder.Clear();
    const auto text = link.builder.CreateString("x");
    const Bytes bytes = link.finish(
        abi::Body::Log, abi::CreateLog(link.builder, abi::LogLevel::Info, text).Union(), request);
    return link.write(abi::Body::Placed, 0, bytes);
}

bool greet_again(Link& link, const Plan&, std::uint64_t) {
    link.builder.Clear();
    const auto text = link.builder.CreateString("hostile");
    return link.say(abi::CreateGreet(link.builder, 0, 0, abi::Kind::Placement, text, text));
}

bool long_reason(Link& link, const Plan&, std::uint64_t request) {
    link.builder.Clear();
    const auto text = link.builder.CreateString(std::string(60'000, 'r'));
    return link.say(abi::CreatePlaced(link.builder, 0, true, text), request);
}

// Gives up with words an operator must not have to print, and lives on.
bool last_words(Link& link, const Plan&, std::uint64_t) {
    link.builder.Clear();
    const auto text = link.builder.CreateString("\x1b[2J\n\xff\xfe" + std::string(50'000, 'w'));
    (void)link.say(abi::CreateFault(link.builder, text));
    return false;
}

// Half a record behind the tail, then the end.
bool die_in_the_middle(Link& link, const Plan&, std::uint64_t request) {
    const Bytes bytes = good_answer(link, request);
    const std::uint64_t offset = link.tail() & (link.ring_bytes - 1);
    std::memcpy(link.ring().data() + offset, bytes.data(), bytes.size() / 2);
    std::_Exit(3);
}

// Everything that is well and good, then garbage, then an exit that looks clean.
bool garbage_and_goodbye(Link& link, const Plan&, std::uint64_t) {
    (void)link.write(abi::Body::Placed, 0, Bytes(64, 0xFF));
    std::_Exit(0);
}

const std::map<std::string, Attack>& attacks() {
    static const std::map<std::string, Attack> all{
        // One word of the header: at = its offset, value = 0 zero, 1 all ones, 2 plus one, 3 random.
        {"word",
         [](Link& link, const Plan& plan, std::uint64_t) {
             spoil_word(link, plan);
             return false;
         }},
        // Every word of the facts, which were copied once and must never be read again.
        {"facts",
         [](Link& link, const Plan&, std::uint64_t) {
             for (std::size_t at = 0; at < layout::kLineBytes; at += 8)
                 for (std::uint64_t kind = 0; kind < 4; ++kind)
                     layout::store_release(link.word(at), other_value(link.word(at), kind));
             return false;
         }},
        {"length", wrong_length},
        {"huge-length",
         [](Link& link, const Plan& plan, std::uint64_t) {
             link.raw_record({static_cast<std::uint32_t>(plan.at), 51, 0, 0}, 64);
             return true;
         }},
        {"two-paddings", two_paddings},
        {"padding-alone", padding_alone},
        {"tail-back",
         [](Link& link, const Plan&, std::uint64_t) {
             link.publish_tail(link.tail() - 16);
             return true;
         }},
        {"tail-far",
         [](Link& link, const Plan&, std::uint64_t) {
             link.publish_tail(link.tail() + 2ULL * link.ring_bytes);
             return true;
         }},
        {"tail-odd",
         [](Link& link, const Plan&, std::uint64_t) {
             link.publish_tail(link.tail() + 1);
             return true;
         }},
        {"flags",
         [](Link& link, const Plan&, std::uint64_t request) {
             return link.write(abi::Body::Placed, 0, good_answer(link, request), 1);
         }},
        {"seq",
         [](Link& link, const Plan&, std::uint64_t request) {
             return answer(link, request, {2, 0, nullptr});
         }},
        {"seq-back",
         [](Link& link, const Plan&, std::uint64_t request) {
             return answer(link, request, {0, 0, nullptr});
         }},
        {"generation",
         [](Link& link, const Plan&, std::uint64_t request) {
             return answer(link, request, {1, 1, nullptr});
         }},
        {"identifier",
         [](Link& link, const Plan&, std::uint64_t request) {
             return answer(link, request, {1, 0, "HFM9"});
         }},
        {"never-asked",
         [](Link& link, const Plan&, std::uint64_t request) {
             return answer(link, request + 1'000'000);
         }},
        {"twice",
         [](Link& link, const Plan&, std::uint64_t request) {
             return answer(link, request) && answer(link, request);
         }},
        {"answer-type", wrong_answer_type},
        {"two-types", two_types},
        {"unknown-type",
         [](Link& link, const Plan& plan, std::uint64_t request) {
             return link.write(static_cast<abi::Body>(plan.at), 0, good_answer(link, request));
         }},
        {"not-allowed", not_allowed},
        {"from-supervisor", from_supervisor},
        {"greet-again", greet_again},
        {"long-reason", long_reason},
        {"request-id",
         [](Link& link, const Plan&, std::uint64_t request) {
             return link.write(abi::Body::Placed, 7, good_answer(link, request));
         }},
        {"flip", flip},
        {"blob", blob},
        {"last-words", last_words},
        {"die-in-the-middle", die_in_the_middle},
        {"garbage-and-goodbye", garbage_and_goodbye},
        // A system call by its number, with arguments that do no harm where nothing stops it.
        {"syscall",
         [](Link& link, const Plan& plan, std::uint64_t request) {
             (void)::syscall(static_cast<long>(plan.at), -1, 0, 0, 0, 0, 0);
             return answer(link, request);
         }},
        // It takes the request and is never heard of again: the head stays where it is.
        {"deaf",
         [](Link&, const Plan&, std::uint64_t) {
             for (;;) ::pause();
             return true;
         }},
    };
    return all;
}

}  // namespace

Bytes Link::finish(abi::Body type,
                   flatbuffers::Offset<void> body,
                   std::uint64_t reply_to,
                   const Lies& lies) {
    builder.Finish(abi::CreateEnvelope(builder,
                                       seq + static_cast<std::uint64_t>(lies.seq_step),
                                       reply_to,
                                       generation ^ lies.generation_xor,
                                       0,
                                       0,
                                       type,
                                       body),
                   lies.identifier != nullptr ? lies.identifier : abi::EnvelopeIdentifier());
    return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

bool Link::write(abi::Body type, std::uint64_t req_id, BytesView payload, std::uint16_t flags) {
    const layout::RecordHeader header{static_cast<std::uint32_t>(payload.size()),
                                      static_cast<std::uint16_t>(type),
                                      flags,
                                      req_id};
    if (!end.out().write(header, payload, ~std::uint64_t{0})) return false;
    ++seq;
    end.flush();
    return true;
}

void Link::raw_record(const layout::RecordHeader& header, std::uint64_t advance) {
    const std::uint64_t offset = tail() & (ring_bytes - 1);
    std::memcpy(ring().data() + offset, &header, sizeof(header));
    publish_tail(tail() + advance);
}

void Link::publish_tail(std::uint64_t tail) {
    layout::exchange_full(word(kTail), tail);
    ring_bell();
}

void Link::ring_bell() {
    const std::uint8_t ding = 1;
    (void)!::write(bell, &ding, sizeof(ding));
}

bool attack(Link& link, const Plan& plan, std::uint64_t request, int control_fd) {
    if (plan.mode == "control-flood") {
        const Bytes bytes(4096, 0xEE);
        while (::send(control_fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        }
        return false;
    }
    if (plan.mode == "close-control") return ::close(control_fd), false;
    const auto found = attacks().find(plan.mode);
    return found != attacks().end() && found->second(link, plan, request);
}

bool between(Link& link, const Plan& plan) {
    // The ring's own code has put right what it writes: spoil it again.
    if (plan.mode == "word") return spoil_word(link, plan), false;
    if (plan.mode == "log-flood" || plan.mode == "log-huge") {
        for (int i = 0; i < kFloodBurst && log_line(link, plan.mode == "log-huge" ? 60'000 : 20);
             ++i) {
        }
        return true;
    }
    if (plan.mode == "counter-flood") {
        for (int i = 0; i < kFloodBurst; ++i) {
            link.builder.Clear();
            const auto name = link.builder.CreateString("made_up_" + std::to_string(link.seq));
            const auto counter = abi::CreateCounter(link.builder, name, link.seq);
            const auto values = link.builder.CreateVector(&counter, 1);
            if (!link.say(abi::CreateCounters(link.builder, values))) break;
        }
        return true;
    }
    if (plan.mode == "stderr-lines" || plan.mode == "stderr-line") {
        Bytes bytes(1U << 16U, 'e');
        if (plan.mode == "stderr-lines")
            for (std::size_t i = 63; i < bytes.size(); i += 64) bytes[i] = '\n';
        // 1 MiB, then a look at the supervisor's records: far more than anybody reads in time.
        for (int i = 0; i < 16; ++i) (void)!::write(STDERR_FILENO, bytes.data(), bytes.size());
        return true;
    }
    if (plan.mode == "bell-storm") {
        const Bytes dings(4096, 1);
        for (int i = 0; i < kFloodBurst; ++i) (void)!::write(link.bell, dings.data(), dings.size());
        return true;
    }
    return false;
}

}  // namespace hf::hostile
