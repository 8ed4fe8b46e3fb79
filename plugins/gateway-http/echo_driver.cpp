// gateway-echo-driver: a gateway with actors that answer 100 bytes, for load generators. Not a supervisor: no jail, no
// restart. Usage: gateway-echo-driver <gateway binary> [port]; ends when its standard input does.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "plugins/gateway-http/test_supervisor.hpp"

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s <gateway binary> [port]\n", argv[0]);
        return 2;
    }
    hf::gateway::TestSupervisor::Options options;
    options.binary = argv[1];
    if (argc > 2) options.port = static_cast<std::uint16_t>(std::atoi(argv[2]));
    hf::gateway::TestSupervisor supervisor(options);
    if (!supervisor.ready()) {
        std::fprintf(stderr, "the gateway is not ready: %s\n", supervisor.error().c_str());
        return 1;
    }
    std::printf("http://127.0.0.1:%u/actor/fixed/one pid %d\n",
                unsigned{supervisor.port()},
                supervisor.pid());
    std::fflush(stdout);
    std::array<char, 64> ignored{};
    while (::read(STDIN_FILENO, ignored.data(), ignored.size()) > 0) {
    }
    const auto seen = supervisor.seen();
    std::printf("requests %llu\n", static_cast<unsigned long long>(seen.requests));
    for (const auto& [name, value] : seen.counters)
        std::printf("%s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
    return seen.fault.empty() ? 0 : 1;
}
