// A guest that calls any function of the host with any arguments, in any order, on events of every kind: the runtime's own
// code on both sides of it, only the guest is native. Its event's bytes are its program, read from its own memory, which
// the host's functions write to as it goes. What an event leaves must keep every bound the guest ABI names, fit its record,
// read back as the message it is, and change the state exactly as its changes say.
// Input: for each event its kind 1 byte, size 2 bytes, then the program; see guest_event().
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "abi/verify/verify.hpp"
#include "plugins/runtime-wasm/answer.hpp"
#include "plugins/runtime-wasm/serve/residents.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace hf;        // NOLINT(google-build-using-namespace): the rooms under test
using namespace hf::wasm;  // NOLINT(google-build-using-namespace): as above
using fuzz::Feed;
using fuzz::must;
using fuzz::Seed;

constexpr std::uint32_t kPages = 2;
constexpr std::uint32_t kPagesMax = 4;
constexpr std::uint32_t kEventAt = 1024;
constexpr std::uint32_t kStateMax = 48 * 1024;
constexpr std::size_t kEventsMax = 8;  // of one input
constexpr std::size_t kResumesMax = 8;
constexpr std::size_t kParkedMax = 4;
// Calls of one event: each costs microseconds, and random() with 64 KiB some tens.
constexpr int kCallsOfAnEvent = 400;
constexpr Deadlines kDeadlines{1'000'000'000, 5'000'000'000};

const hf_host_v1* the_host = nullptr;

struct Native {
    wasm_rt_memory_t memory;
};

Native& native(void* instance) {
    return *static_cast<Native*>(instance);
}

enum Op : std::uint8_t {
    kGet,
    kPut,
    kDelete,
    kList,
    kNext,
    kClose,
    kReply,
    kHttpReply,
    kAlarmSet,
    kAlarmGet,
    kAlarmClear,
    kCall,
    kResult,
    kSend,
    kEntitySend,
    kWsSend,
    kWsClose,
    kPassivate,
    kLog,
    kNow,
    kRandom,
    kAbort,
    kFdWrite,
    kFdStat,
    kClock,
    kClockRes,
    kWasiRandom,
    kSizes,
    kExit,
    kGrow,
    kStore,
    kEnd,
    kOps
};

// An address or a length: mostly within the memory, now and then anything.
std::uint32_t word(Feed& feed) {
    const std::uint32_t value = feed.u16();
    if (value != 0xffff) return value;
    return feed.u32();
}

// Owns nothing: the host may leave it by a jump.
std::uint32_t one_call(void* instance, std::uint8_t op, Feed& f) {
    const hf_host_v1& h = *the_host;
    const std::uint32_t a = word(f);
    const std::uint32_t b = word(f);
    switch (op) {
        case kGet:
            return h.kv_get(a, b, word(f), word(f));
        case kPut:
            return h.kv_put(a, b, word(f), word(f));
        case kDelete:
            return h.kv_delete(a, b);
        case kList:
            return h.kv_list(a, b, word(f), word(f), f.u8(), f.u8() % 8);
        case kNext:
            return h.kv_next(a, b, word(f));
        case kClose:
            return h.kv_close(a);
        case kReply:
            return h.reply(a, b);
        case kHttpReply:
            return h.http_reply(a, b, word(f), word(f), word(f));
        case kAlarmSet:
            return h.alarm_set(std::uint64_t{a} << 32 | b);
        case kAlarmGet:
            return static_cast<std::uint32_t>(h.alarm_get());
        case kAlarmClear:
            return h.alarm_clear();
        case kCall:
            return h.call(a, b, word(f), word(f), word(f), word(f), f.u16());
        case kResult:
            return h.result_read(a, b, word(f));
        case kSend:
            return h.send(a, b, word(f), word(f), word(f), word(f));
        case kEntitySend:
            return h.entity_send(a, b, 0, 0, 0, 0) + h.entity_ask(a, b, 0, 0, 0, 0, 0);
        case kWsSend:
            return h.ws_send(a, b % 4, word(f), word(f));
        case kWsClose:
            return h.ws_close(a, b, word(f), word(f));
        case kPassivate:
            return h.passivate();
        case kLog:
            h.log(a, b, word(f));
            return 0;
        case kNow:
            return static_cast<std::uint32_t>(h.now_ms());
        case kRandom:
            h.random(a, b);
            return 0;
        case kAbort:
            h.abort(a, b);
            return 0;
        case kFdWrite:
            return h.wasi_fd_write(a % 4, b, f.u16() % 2048, word(f));
        case kFdStat:
            return h.wasi_fd_fdstat_get(a % 4, b);
        case kClock:
            return h.wasi_clock_time_get(a % 4, b, word(f));
        case kClockRes:
            return h.wasi_clock_res_get(a % 4, b);
        case kWasiRandom:
            return h.wasi_random_get(a, b);
        case kSizes:
            return h.wasi_sizes_get(a, b);
        case kExit:
            h.wasi_proc_exit(a);
            return 0;
        case kGrow:
            return h.grow_memory(&native(instance).memory, a % 8);
        case kStore: {
            // The guest's own store, within its memory.
            const wasm_rt_memory_t& memory = native(instance).memory;
            if (std::uint64_t{a} + 4 <= memory.size) memory.data[a] = static_cast<std::uint8_t>(b);
            return 0;
        }
        default:
            return 0;
    }
}

std::uint32_t guest_event(void* instance, std::uint32_t, std::uint32_t at, std::uint32_t size) {
    const wasm_rt_memory_t& memory = native(instance).memory;
    Feed feed(memory.data + at, size);
    for (int calls = 0; !feed.empty() && calls < kCallsOfAnEvent; ++calls) {
        const std::uint8_t op = feed.u8() % kOps;
        if (op == kEnd) return feed.u8() % 2 == 0 ? 0 : static_cast<std::uint32_t>(-5);
        (void)one_call(instance, op, feed);
    }
    return 0;
}

std::uint32_t guest_alloc(void*, std::uint32_t size) {
    return size <= kPages * 65536 - kEventAt ? kEventAt : 0;
}

const hf_module_v1 kModule = [] {
    hf_module_v1 module{};
    module.abi = HF_MODULE_ABI;
    module.module_bytes = sizeof(hf_module_v1);
    module.host_bytes = sizeof(hf_host_v1);
    module.instance_bytes = sizeof(Native);
    module.max_pages = UINT32_MAX;
    module.set_host = [](const hf_host_v1* host) { the_host = host; };
    module.init = [] {};
    module.instantiate = [](void* instance) {
        the_host->allocate_memory(&native(instance).memory, kPages, 65535);
    };
    module.memory = [](void* instance) { return &native(instance).memory; };
    module.actor_alloc = guest_alloc;
    module.actor_event = guest_event;
    return module;
}();

// The process's one worker and its program; made at the first input, when libFuzzer has laid its own handlers.
struct Machine {
    Machine() {
        fill_engine_calls(host);
        fill_guest_calls(host);
        auto made = Worker::create(10'000'000, kParkedMax);
        must(made.ok());
        worker = std::move(made).value();
        Image image;
        image.memory_fd.reset(::memfd_create("image", MFD_CLOEXEC));
        must(::ftruncate(image.memory_fd.get(), kPages * 65536) == 0);
        image.pages = kPages;
        auto loaded = Program::create(&kModule, host, std::move(image), *worker, pool);
        must(loaded.ok());
        program = std::move(loaded).value();
        actor_class.name = "native";
        actor_class.program = program.get();
        actor_class.state_max = kStateMax;
        actor_class.pages_max = kPagesMax;
        actor_class.deadlines = kDeadlines;
    }
    hf_host_v1 host{};
    SlotPool pool{4};
    std::unique_ptr<Worker> worker;
    std::unique_ptr<Program> program;
    ActorClass actor_class;
};

// As the supervisor would see it.
void check_answer(const Ran& ran) {
    flatbuffers::FlatBufferBuilder fbb;
    const auto body = delivered(fbb, 1, ran);
    fbb.Finish(abi::CreateEnvelope(fbb, 1, 7, 1, 0, 0, abi::Body::Delivered, body.Union()),
               abi::EnvelopeIdentifier());
    must(fbb.GetSize() + sizeof(layout::RecordHeader) <= kRecordBytesMax);
    verify::Checker checker(abi::From::Plugin, abi::Kind::Runtime, 1);
    const layout::RecordHeader header{
        fbb.GetSize(), static_cast<std::uint16_t>(abi::Body::Delivered), 0, 0};
    must(checker.check(header, {fbb.GetBufferPointer(), fbb.GetSize()}) != nullptr);
}

void check_bounds(const Ran& ran) {
    const Event& event = *ran.output;
    must(ran.state_bytes <= kStateMax);
    must((ran.ended == Ended::Ok || ran.ended == Ended::Calling) == ran.error.empty());
    must(event.logs.size() <= kLogLinesPerEventMax);
    for (const LogLine& line : event.logs)
        must(line.level <= 4 && line.text.size() <= kLogLineBytesMax);
    if (ran.ended != Ended::Ok) {
        must(ran.changes.empty());
        return;
    }
    must(event.sends.size() <= kSendsMax && event.sockets.size() <= kSocketCommandsMax);
    std::size_t targets = 0;
    for (std::size_t i = 0; i < event.sockets.size(); ++i) {
        const SocketCommand& one = event.sockets[i];
        targets += 1 + one.also.size();
        must(!one.close || one.also.empty());
        // Who says the same as the one before would have joined it.
        if (i == 0 || one.close || event.sockets[i - 1].close) continue;
        must(one.binary != event.sockets[i - 1].binary || one.data != event.sockets[i - 1].data);
    }
    must(targets == event.socket_targets && targets <= kSocketTargetsMax);
    must(event.reply_headers.size() <= kHeaderBytesMax);
    must(event.reply_body.size() <= kPayloadBytesMax);
    std::size_t sent = ran.changes.size();
    for (const OutwardSend& send : event.sends) {
        must(send.target.find('/') != std::string::npos && send.target.size() <= kTargetBytesMax);
        must(send.method.size() <= kMethodBytesMax);
        sent += send.payload.size();
    }
    must(sent <= kPayloadBytesMax);
    must(event.alarm_ms >= 0);
}

void run(Residents& residents, UnitState& model, Feed& feed) {
    const std::uint32_t kind = feed.u8() % 9;
    const std::size_t size = feed.u16();
    const BytesView program = feed.bytes(size);
    Ran ran = residents.run(1, kind, program, 1'700'000'000'000, 0, {1, 1});
    const Bytes answer(std::size_t{feed.u16()} % kPayloadBytesMax);
    for (std::size_t i = 0; ran.ended == Ended::Calling; ++i) {
        check_answer(ran);
        const std::uint32_t n = ran.output->call.n;
        must(n == i + 1 && n <= kCallsMax && residents.waiting(1));
        must(ran.output->call.what.payload.size() <= kPayloadBytesMax);
        if (i == kResumesMax) {
            residents.drop(1);  // given up while it waits
            return;
        }
        const std::int32_t code = i % 3 == 2 ? -6 : 0;
        ran = residents.resume(1, {1, 1}, n, code, answer, 0);
    }
    check_bounds(ran);
    check_answer(ran);
    if (!ran.changes.empty()) must(model.fold(ran.changes, false).ok());
    const auto whole = residents.checkpoint(1);
    must(whole.ok() && *whole == model.encode_all());
}

Bytes event(std::uint8_t kind, const Seed& program, std::uint16_t answer = 0) {
    Seed out;
    out.u8(kind).u16(program.bytes().size()).raw(program.bytes()).u16(answer);
    return out.bytes();
}

std::vector<Bytes> seeds() {
    // Texts at 600, below the program: "bank/alice" and one flat header, stored byte by byte.
    const auto text = [](Seed& out, std::string_view what, std::uint16_t at) -> Seed& {
        for (const char c : what) out.u8(kStore).u16(at++).u16(static_cast<std::uint8_t>(c));
        return out;
    };
    Seed state;
    state.u8(kPut).u16(1).u16(3).u16(2000).u16(500).u8(kPut).u16(5).u16(7).u16(0).u16(40000);
    state.u8(kGet).u16(1).u16(3).u16(9000).u16(100).u8(kList).u16(0).u16(0).u16(0).u16(0).u8(0);
    state.u8(1).u8(kNext).u16(16).u16(9000).u16(2000).u8(kClose).u16(16).u16(0);
    state.u8(kDelete).u16(1).u16(3).u8(kHttpReply).u16(200).u16(0).u16(0).u16(0).u16(100);
    Seed outward;
    text(outward, "bank/alice", 600);
    outward.u8(kSend).u16(600).u16(10).u16(600).u16(4).u16(0).u16(1000);
    outward.u8(kWsSend).u16(9).u16(1).u16(0).u16(300).u8(kWsSend).u16(8).u16(1).u16(0).u16(300);
    outward.u8(kWsClose).u16(9).u16(1000).u16(0).u16(5);
    outward.u8(kAlarmSet).u16(0).u16(500).u8(kLog).u16(2).u16(600).u16(10);
    outward.u8(kPassivate).u16(0).u16(0).u8(kFdWrite).u16(1).u16(100).u16(1).u16(700);
    Seed calling;
    text(calling, "bank/alice", 600);
    for (int i = 0; i < 3; ++i)
        calling.u8(kCall).u16(600).u16(10).u16(600).u16(4).u16(0).u16(900).u16(50);
    calling.u8(kResult).u16(0).u16(9000).u16(5000).u8(kReply).u16(9000).u16(400);
    Seed wild;
    wild.u8(kGet).u16(0xffff).u32(0xfffffff0).u16(0xffff).u32(0x20).u16(0).u16(0);
    Seed fails;
    fails.u8(kPut).u16(1).u16(3).u16(0).u16(9).u8(kGrow).u16(9).u16(0).u8(kEnd).u8(1);
    std::vector<Bytes> out;
    for (const auto& [kind, program] : {std::pair<std::uint8_t, const Seed*>{1, &state},
                                        {4, &outward},
                                        {2, &calling},
                                        {3, &wild},
                                        {6, &fails}})
        out.push_back(event(kind, *program, 700));
    Bytes all;
    for (const Bytes& each : out) all.insert(all.end(), each.begin(), each.end());
    out.push_back(all);
    return out;
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return seeds();
}

void hf::fuzz::take(BytesView input) {
    static Machine machine;
    Feed feed(input);
    Residents residents(*machine.worker, machine.pool, 1);
    UnitState model(kStateMax);
    must(residents.open(1, "actor/t/native/n", machine.actor_class).ok());
    must(residents.part(1, 0, true).ok());
    for (std::size_t i = 0; !feed.empty() && i < kEventsMax; ++i) {
        run(residents, model, feed);
        if (residents.count() == 0) return;
    }
}
