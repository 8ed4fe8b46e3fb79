// gateway-http: HTTP/1.1 for actors. See gateway.hpp.
#include <cstdio>

#include "abi/sdk/plugin.hpp"
#include "plugins/gateway-http/gateway.hpp"

int main(int argc, char** argv) {
    // Never destroyed: the loop's handles, which know it by address, end with the process.
    static auto& gateway = *new hf::gateway::Gateway;
    auto driver = hf::sdk::Driver::attach(gateway, argc, argv);
    if (!driver.ok()) {
        // The supervisor ended before it had anything to say.
        if (driver.error().code == hf::Code::PeerGone) return 0;
        std::fprintf(stderr, "gateway-http: %s\n", driver.error().message.c_str());
        return 1;
    }
    return gateway.run(**driver);
}
