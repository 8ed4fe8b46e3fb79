// gateway-http: libuv over sockets the supervisor listens on. Connections of its own, to other nodes, are kAllowOutgoing.
#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kGateway[] = {
    {"accept4", kAlways, "clients"},
    {"accept", kAlways, "clients, where libuv falls back"},
    {"listen", kAlways, "uv_listen repeats it on the socket it was given"},
    {"timerfd_create", kAlways, "timers of the loop"},
    {"getdents64", kAlways, "OpenSSL reads a directory of certificates"},
};

}  // namespace

const Rules kAllowGatewayHttp{kGateway};

}  // namespace hf::jail
