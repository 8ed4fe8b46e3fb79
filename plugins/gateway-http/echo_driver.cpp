// gateway-echo-driver: a gateway with the actors of TestSupervisor, for load generators and for clients that are programs of
// others. Not a supervisor: no jail, no restart. Usage: gateway-echo-driver <gateway binary> [port [setting=value...]]; ends
// when its standard input does, and says what it has seen.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "plugins/gateway-http/test_supervisor.hpp"

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s <gateway binary> [port [setting=value...]]\n", argv[0]);
        return 2;
    }
    hf::gateway::TestSupervisor::Options options;
    options.binary = argv[1];
    if (argc > 2) options.port = static_cast<std::uint16_t>(std::atoi(argv[2]));
    for (int i = 3; i < argc; ++i) {
        const std::string setting = argv[i];
        const std::size_t equals = std::min(setting.find('='), setting.size() - 1);
        options.settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
    }
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
    // The end of a socket may be on its way still.
    supervisor.wait_until([](const auto& now) { return now.closed.size() >= now.sockets; });
    const auto seen = supervisor.seen();
    std::printf("requests %llu\n", static_cast<unsigned long long>(seen.requests));
    std::printf("messages %zu\n", seen.messages.size());
    for (const auto& closed : seen.closed) std::printf("closed %u\n", closed.code);
    for (const auto& [name, value] : seen.counters)
        std::printf("%s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
    return seen.fault.empty() ? 0 : 1;
}
