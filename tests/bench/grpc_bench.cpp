// A unary gRPC call over a unix socket with the fields of link_bench's call, as what a supervisor would otherwise use: one at
// a time on another CPU, one per millisecond on the same CPU, and with 64 open. One JSON object a line, named as there.
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "grpc_echo.grpc.pb.h"

namespace {

using hf::bench::Put;
using hf::bench::Store;
using hf::bench::Stored;
using Clock = std::chrono::steady_clock;

constexpr auto kSlice = std::chrono::milliseconds(100);  // as link_bench
constexpr int kColdCalls = 60;
constexpr int kOpen = 64;

class Service final : public Store::Service {
    grpc::Status Write(grpc::ServerContext*, const Put* put, Stored* stored) override {
        stored->set_etag(put->etag());
        stored->set_write_id_hi(put->write_id_hi());
        stored->set_write_id_lo(put->write_id_lo());
        return grpc::Status::OK;
    }
};

[[noreturn]] void serve(const std::string& address) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Service service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    if (!server) ::_exit(1);
    server->Wait();
    ::_exit(0);
}

// Every thread there is now; later ones inherit it.
void pin(pid_t pid, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task"))
        (void)::sched_setaffinity(std::atoi(task.path().filename().c_str()), sizeof set, &set);
}

Put request(std::uint64_t number) {
    Put put;
    put.set_key("apps/default/log/actor.2fdefault.2fcounter.2falice/00000000000000000042");
    put.set_body(std::string(48, '\0'));
    put.set_etag("0123456789abcdef0123456789abcdef");
    put.set_write_id_hi(number);
    put.set_write_id_lo(7);
    return put;
}

void call(Store::Stub& stub, std::uint64_t number) {
    grpc::ClientContext context;
    Stored stored;
    if (!stub.Write(&context, request(number), &stored).ok() || stored.write_id_hi() != number) {
        std::fprintf(stderr, "grpc_bench: a call failed\n");
        std::exit(1);
    }
}

double microseconds(Clock::duration took) {
    return std::chrono::duration<double, std::micro>(took).count();
}

double median(std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

double hot(Store::Stub& stub) {
    std::vector<double> times;
    for (int i = 0; i < 200; ++i) call(stub, 1);
    const auto end = Clock::now() + kSlice;
    for (auto now = Clock::now(); now < end;) {
        call(stub, times.size());
        const auto after = Clock::now();
        times.push_back(microseconds(after - now));
        now = after;
    }
    return median(times);
}

double cold(Store::Stub& stub) {
    std::vector<double> times;
    timespec next{};
    ::clock_gettime(CLOCK_MONOTONIC, &next);
    for (int i = 0; i < kColdCalls; ++i) {
        next.tv_nsec += 1'000'000;
        if (next.tv_nsec >= 1'000'000'000) {
            next.tv_nsec -= 1'000'000'000;
            ++next.tv_sec;
        }
        ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
        const auto before = Clock::now();
        call(stub, static_cast<std::uint64_t>(i));
        times.push_back(microseconds(Clock::now() - before));
    }
    return median(times);
}

struct Open {
    grpc::ClientContext context;
    Stored stored;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Stored>> reader;
};

double open64(Store::Stub& stub) {
    grpc::CompletionQueue queue;
    const auto send = [&] {
        auto* open = new Open;
        open->reader = stub.AsyncWrite(&open->context, request(1), &queue);
        open->reader->Finish(&open->stored, &open->status, open);
    };
    std::uint64_t done = 0;
    const auto take = [&] {
        void* tag = nullptr;
        bool good = false;
        queue.Next(&tag, &good);
        const std::unique_ptr<Open> open(static_cast<Open*>(tag));
        if (!good || !open->status.ok()) std::exit(1);
        ++done;
    };
    for (int i = 0; i < kOpen; ++i) send();
    const auto begun = Clock::now();
    auto now = begun;
    for (; now - begun < kSlice; now = Clock::now()) {
        take();
        send();
    }
    const double rate = static_cast<double>(done) * 1e6 / microseconds(now - begun);
    for (int i = 0; i < kOpen; ++i) take();
    return rate;
}

void print(const char* name, double value, const char* unit) {
    std::printf("{\"name\":\"%s\",\"unit\":\"%s\",\"median\":%.3f}\n", name, unit, value);
}

}  // namespace

int main() {
    char directory[] = "/tmp/holdfast-grpc-XXXXXX";
    if (::mkdtemp(directory) == nullptr) return 1;
    const std::string path = std::string(directory) + "/socket";
    const pid_t server = ::fork();
    if (server == 0) serve("unix:" + path);
    const auto channel = grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials());
    const bool there =
        channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
    if (there) {
        const auto stub = Store::NewStub(channel);
        for (int i = 0; i < 100; ++i) call(*stub, 1);
        pin(::getpid(), 0);
        pin(server, 1);
        print("grpc_hot_p50", hot(*stub), "us");
        print("grpc_out64_calls", open64(*stub), "1/s");
        pin(server, 0);
        print("grpc_cold_same_cpu_p50", cold(*stub), "us");
    }
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
    std::filesystem::remove_all(directory);
    return there ? 0 : 1;
}
