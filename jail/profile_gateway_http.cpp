// gateway-http: libuv over sockets the supervisor listens on, and connections of its own to peers.
#include <netinet/in.h>
#include <sys/socket.h>

#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kGateway[] = {
    {"socket", arg_is(0, AF_INET), "connections to peers"},
    {"socket", arg_is(0, AF_INET6), "connections to peers"},
    {"socket", arg_is(0, AF_UNIX), "name service caches"},
    {"connect", kAlways, "connections to peers"},
    {"accept4", kAlways, "clients"},
    {"accept", kAlways, "clients, where libuv falls back"},
    {"listen", kAlways, "uv_listen repeats it on the socket it was given"},
    {"setsockopt", kAlways, "TCP_NODELAY, keep-alive, send buffers"},
    {"getpeername", kAlways, "who asks: the loopback-only page, log lines"},
    {"sendmmsg", kAlways, "the resolver asks A and AAAA at once"},
    {"recvmmsg", kAlways, "the resolver"},
    {"timerfd_create", kAlways, "timers of the loop"},
    {"timerfd_settime", kAlways, "timers of the loop"},
    {"socketpair", arg_is(0, AF_UNIX), "libuv's inner wake-up"},
    {"getdents64", kAlways, "OpenSSL reads a directory of certificates"},
};

}  // namespace

const Rules kAllowGatewayHttp{kGateway};

}  // namespace hf::jail
