// What one call over a link costs, as ratios to raw primitives measured in the same run, interleaved, in random order.
// Absolute figures are of this machine at this hour; only the ratios mean something elsewhere.
//
//   raw        one cache line bounced between two processes on two CPUs
//   hot        one typed call at a time, verified on both sides, plugin on the other CPU, its second filter in force
//   out64      the same with 64 calls open: calls per second
//   cold       one call per millisecond, both sides asleep, same CPU and other CPU, against a futex ping-pong
//   idle       CPU time of the plugin over a second without calls
//
// usage: link_bench [--quick | --reps N]; prints one JSON object a line. Started with --kind storage it is the plugin itself.
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/layout/atomics.hpp"
#include "abi/sdk/plugin.hpp"
#include "tests/abi/rig.hpp"

using namespace hf;

namespace {

constexpr int kHomeCpu = 0;
constexpr int kOtherCpu = 1;
constexpr int kRepsDefault = 11;
constexpr std::int64_t kSliceNs =
    100'000'000;  // one measurement; eight of them eleven times are ten seconds
constexpr int kColdCalls = 60;

// ---- the plugin: takes a Put apart, answers as a store would

class Store final : public sdk::Plugin {
public:
    [[nodiscard]] sdk::Identity identity() const override {
        return {abi::Kind::Storage, "storage-local", "bench", {}, {}};
    }
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override {
        (void)configure;
        context_ = &context;
        return {};
    }
    void handle(const sdk::Message& message) override {
        if (message.type != abi::Body::Put) return;
        const auto& put = message.as<abi::Put>();
        sum_ += put.key()->size() + put.body()->size() + put.etag()->size() + put.body()->Get(0);
        auto& fbb = context_->builder();
        const auto etag = fbb.CreateString(put.etag());
        context_->reply(message.req_id,
                        abi::CreateStored(fbb, abi::Outcome::Applied, etag, put.write_id()));
    }

private:
    sdk::Context* context_ = nullptr;
    std::uint64_t sum_ = 0;
};

// ---- the raw peer: a forked process on shared memory

struct RawShared {
    alignas(128) std::uint32_t mode;  // 0 sleeps, 1 bounces a line, 2 plays futex ping-pong, 3 ends
    alignas(128) std::uint32_t ping;
    alignas(128) std::uint32_t pong;
    alignas(128) std::uint32_t in_mode;  // what the peer has seen of `mode`
};

void futex_wait(std::uint32_t& word, std::uint32_t seen) {
    ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr);
}
void futex_wake(std::uint32_t& word) {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, 1);
}

void raw_peer(RawShared& shared) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::uint32_t seen = 0;
    for (;;) {
        const std::uint32_t mode = layout::load_acquire(shared.mode);
        if (mode == 3) ::_exit(0);
        if (layout::load_relaxed(shared.in_mode) != mode)
            layout::exchange_full(shared.in_mode, mode);
        if (mode == 0) {
            futex_wait(shared.mode, 0);
            continue;
        }
        const std::uint32_t ping = layout::load_acquire(shared.ping);
        if (ping != seen) {
            seen = ping;
            layout::exchange_full(shared.pong, seen);
            if (mode == 2) futex_wake(shared.pong);
        } else if (mode == 2) {
            futex_wait(shared.ping, seen);
        }
    }
}

void pin(pid_t pid, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    HF_CHECK(::sched_setaffinity(pid, sizeof(set), &set) == 0, "two CPUs are needed");
}

class Raw {
public:
    Raw() {
        shared_ = static_cast<RawShared*>(::mmap(
            nullptr, sizeof(RawShared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        HF_CHECK(shared_ != MAP_FAILED, "shared memory for the raw peer");
        pid_ = ::fork();
        if (pid_ == 0) raw_peer(*shared_);
    }
    ~Raw() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Raw(const Raw&) = delete;
    Raw& operator=(const Raw&) = delete;
    void on(int cpu) const { pin(pid_, cpu); }
    void mode(std::uint32_t value) {
        layout::exchange_full(shared_->mode, value);
        // A peer that waits for a ping is woken by one; none is sent in earnest before it is in the new mode.
        while (layout::load_acquire(shared_->in_mode) != value && value != 3) {
            layout::exchange_full(shared_->ping, ++count_);
            futex_wake(shared_->ping);
            futex_wake(shared_->mode);
            ::sched_yield();
        }
    }
    void bounce() {
        layout::exchange_full(shared_->ping, ++count_);
        while (layout::load_acquire(shared_->pong) != count_) {
        }
    }
    void futex_round() {
        layout::exchange_full(shared_->ping, ++count_);
        futex_wake(shared_->ping);
        for (;;) {
            const std::uint32_t pong = layout::load_acquire(shared_->pong);
            if (pong == count_) return;
            futex_wait(shared_->pong, pong);
        }
    }

private:
    RawShared* shared_ = nullptr;
    pid_t pid_ = 0;
    std::uint32_t count_ = 0;
};

// ---- the supervisor's side

class Caller {
public:
    explicit Caller(port::SegmentPool& pool) {
        started_ = rig::start(pool,
                              {1U << 20U, 4U << 20U},
                              1,
                              abi::Kind::Storage,
                              "/proc/self/exe",
                              {"--kind", "storage"});
        HF_CHECK(started_.ready, started_.error.c_str());
    }
    [[nodiscard]] pid_t pid() const { return started_.child.pid(); }
    void send() {
        auto& fbb = started_.channel->builder();
        const auto key = fbb.CreateString(
            "apps/default/log/actor.2fdefault.2fcounter.2falice/00000000000000000042");
        const auto body = fbb.CreateVector(body_.data(), body_.size());
        const auto etag = fbb.CreateString("0123456789abcdef0123456789abcdef");
        ++sent_;
        const abi::WriteId id(sent_, 7);
        started_.channel->request(
            sent_, abi::CreatePut(fbb, key, body, abi::Condition::IfMatch, etag, &id), 0, sent_);
    }
    void flush() { started_.channel->flush(); }
    // Until `count` answers in all have come.
    void receive(std::uint64_t count) {
        while (answered_ < count) {
            const auto more = started_.channel->drain(256, handler_);
            HF_CHECK(more.ok(), more ? "" : more.error().message.c_str());
            if (answered_ >= count) break;
            if (started_.channel->before_block()) {
                pollfd fd{started_.channel->bell_fd(), POLLIN, 0};
                (void)::poll(&fd, 1, -1);
            }
        }
    }
    void call() {
        send();
        flush();
        receive(sent_);
    }
    [[nodiscard]] std::uint64_t sent() const { return sent_; }
    [[nodiscard]] std::uint64_t answered() const { return answered_; }

private:
    rig::Started started_;
    std::array<std::uint8_t, 48> body_{};
    std::uint64_t sent_ = 0;
    std::uint64_t answered_ = 0;
    rig::Handler handler_ = [this](const port::Received& received) {
        const auto& stored = received.as<abi::Stored>();
        HF_CHECK(stored.outcome() == abi::Outcome::Applied && stored.etag()->size() == 32 &&
                     stored.write_id()->hi() == received.reply_to,
                 "the answer is not the call's");
        ++answered_;
    };
};

// ---- measuring

double percentile(std::vector<std::int64_t>& times, double part) {
    const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(times.size() - 1));
    std::nth_element(times.begin(), times.begin() + at, times.end());
    return static_cast<double>(times[static_cast<std::size_t>(at)]) / 1000.0;
}

struct Times {
    double p50_us = 0;
    double p99_us = 0;
};

Times hot(const std::function<void()>& once) {
    std::vector<std::int64_t> times;
    times.reserve(1'000'000);
    for (int i = 0; i < 2000; ++i) once();
    const std::int64_t end = monotonic_ns() + kSliceNs;
    for (std::int64_t now = monotonic_ns(); now < end;) {
        once();
        const std::int64_t after = monotonic_ns();
        times.push_back(after - now);
        now = after;
    }
    return {percentile(times, 0.5), percentile(times, 0.99)};
}

Times cold(const std::function<void()>& once) {
    std::vector<std::int64_t> times;
    timespec next{};
    ::clock_gettime(CLOCK_MONOTONIC, &next);
    for (int i = 0; i < kColdCalls; ++i) {
        next.tv_nsec += 1'000'000;
        if (next.tv_nsec >= 1'000'000'000) {
            next.tv_nsec -= 1'000'000'000;
            ++next.tv_sec;
        }
        ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
        const std::int64_t before = monotonic_ns();
        once();
        times.push_back(monotonic_ns() - before);
    }
    return {percentile(times, 0.5), percentile(times, 0.99)};
}

double open64(Caller& caller) {
    constexpr std::uint64_t kOpen = 64;
    const std::int64_t start = monotonic_ns();
    const std::uint64_t before = caller.answered();
    std::int64_t now = start;
    while (now - start < kSliceNs) {
        while (caller.sent() - caller.answered() < kOpen) caller.send();
        caller.flush();
        caller.receive(caller.answered() + 1);
        now = monotonic_ns();
    }
    const std::uint64_t done = caller.answered() - before;
    caller.receive(caller.sent());
    return static_cast<double>(done) * 1e9 / static_cast<double>(now - start);
}

double cpu_ns(pid_t pid) {
    clockid_t clock = 0;
    timespec at{};
    if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &at) != 0) return -1;
    return static_cast<double>(at.tv_sec) * 1e9 + static_cast<double>(at.tv_nsec);
}

using Figures = std::map<std::string, std::vector<double>>;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::vector<double> combine(const Figures& figures,
                            const std::string& a,
                            const std::string& b,
                            double (*how)(double, double)) {
    std::vector<double> out;
    for (std::size_t i = 0; i < figures.at(a).size(); ++i)
        out.push_back(how(figures.at(a)[i], figures.at(b)[i]));
    return out;
}

// One row: every value, and in words for the table when there is a target.
void print(const std::string& name,
           const std::vector<double>& values,
           const char* unit,
           const char* figure = nullptr,
           const char* target = nullptr,
           bool met = false) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    std::printf(
        "{\"name\":\"%s\",\"unit\":\"%s\",\"median\":%.3f,\"min\":%.3f,\"max\":%.3f,\"reps\":%zu",
        name.c_str(),
        unit,
        median(values),
        *low,
        *high,
        values.size());
    if (figure != nullptr)
        std::printf(
            ",\"figure\":\"%s\",\"measured\":\"%.2f %s [%.2f..%.2f]\",\"target\":\"%s\",\"met\":%s",
            figure,
            median(values),
            unit,
            *low,
            *high,
            target,
            met ? "true" : "false");
    std::printf("}\n");
}

void report(const Figures& figures) {
    for (const char* name : {"raw_p50",
                             "raw_p99",
                             "hot_p50",
                             "hot_p99",
                             "futex_same_cpu_p50",
                             "futex_hot_same_cpu_p50",
                             "hot_same_cpu_p50",
                             "cold_same_cpu_p50",
                             "cold_same_cpu_p99",
                             "futex_other_cpu_p50",
                             "cold_other_cpu_p50"})
        print(name, figures.at(name), "us");
    print("out64_plugin_cpu", figures.at("out64_plugin_cpu"), "ns");
    const auto difference = [](double a, double b) { return a - b; };
    const auto ratio = [](double a, double b) { return a / b; };
    const auto over_raw = combine(figures, "hot_p50", "raw_p50", difference);
    print("hot_minus_raw",
          over_raw,
          "us",
          "typed verified call, hot, minus a raw cache-line round trip",
          "<= 0.65 us",
          median(over_raw) <= 0.65);
    const auto same = combine(figures, "cold_same_cpu_p50", "futex_same_cpu_p50", ratio);
    print("cold_same_cpu",
          same,
          "x futex",
          "cold call, same CPU",
          "<= 1.45 x futex ping-pong",
          median(same) <= 1.45);
    const auto other = combine(figures, "cold_other_cpu_p50", "futex_other_cpu_p50", ratio);
    print("cold_other_cpu",
          other,
          "x futex",
          "cold call, other CPU",
          "<= 1.05 x futex ping-pong",
          median(other) <= 1.05);
    const auto& calls = figures.at("out64_calls");
    print("out64_calls",
          calls,
          "1/s",
          "typed calls with 64 open",
          ">= 1000000 1/s",
          median(calls) >= 1e6);
    const auto& idle = figures.at("idle_plugin_cpu");
    print("idle_plugin_cpu",
          idle,
          "ns",
          "CPU time of an idle plugin in 1 s",
          "0 ns",
          median(idle) <= 0);
}

void measure(Figures& figures, Caller& caller, Raw& raw, int reps) {
    const auto add = [&](const std::string& name, const Times& times) {
        figures[name + "_p50"].push_back(times.p50_us);
        figures[name + "_p99"].push_back(times.p99_us);
    };
    const std::vector<std::function<void()>> cases{
        [&] {
            raw.on(kOtherCpu);
            raw.mode(1);
            add("raw", hot([&] { raw.bounce(); }));
            raw.mode(0);
        },
        [&] {
            pin(caller.pid(), kOtherCpu);
            add("hot", hot([&] { caller.call(); }));
        },
        [&] {
            pin(caller.pid(), kOtherCpu);
            const double before = cpu_ns(caller.pid());
            const std::uint64_t calls = caller.answered();
            figures["out64_calls"].push_back(open64(caller));
            figures["out64_plugin_cpu"].push_back((cpu_ns(caller.pid()) - before) /
                                                  static_cast<double>(caller.answered() - calls));
        },
        [&] {
            raw.on(kHomeCpu);
            raw.mode(2);
            add("futex_same_cpu", cold([&] { raw.futex_round(); }));
            raw.mode(0);
        },
        [&] {
            pin(caller.pid(), kHomeCpu);
            add("cold_same_cpu", cold([&] { caller.call(); }));
        },
        [&] {
            raw.on(kHomeCpu);
            raw.mode(2);
            add("futex_hot_same_cpu", hot([&] { raw.futex_round(); }));
            raw.mode(0);
        },
        [&] {
            pin(caller.pid(), kHomeCpu);
            add("hot_same_cpu", hot([&] { caller.call(); }));
        },
        [&] {
            raw.on(kOtherCpu);
            raw.mode(2);
            add("futex_other_cpu", cold([&] { raw.futex_round(); }));
            raw.mode(0);
        },
        [&] {
            pin(caller.pid(), kOtherCpu);
            add("cold_other_cpu", cold([&] { caller.call(); }));
        },
    };
    std::vector<std::size_t> order(cases.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::mt19937_64 random(static_cast<std::uint64_t>(monotonic_ns()));
    for (int rep = 0; rep < reps; ++rep) {
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t at : order) cases[at]();
    }
}

}  // namespace

int main(int argc, char** argv) {
    int reps = kRepsDefault;
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) == "--kind") return sdk::run<Store>(argc, argv);
        if (std::string_view(argv[i]) == "--quick") reps = 3;
        if (std::string_view(argv[i]) == "--reps" && i + 1 < argc)
            reps = std::max(1, std::atoi(argv[++i]));
    }
    Raw raw;
    port::SegmentPool pool;
    // Both ends decide whether they may spin before anything is pinned.
    Caller caller(pool);
    for (int i = 0; i < 1000; ++i) caller.call();
    pin(0, kHomeCpu);

    Figures figures;
    measure(figures, caller, raw, reps);
    pollfd none{-1, 0, 0};
    (void)::poll(&none, 1, 100);  // the last call's own end is no idle time
    const double before = cpu_ns(caller.pid());
    (void)::poll(&none, 1, 1000);
    figures["idle_plugin_cpu"].push_back(cpu_ns(caller.pid()) - before);

    report(figures);
    return 0;
}
