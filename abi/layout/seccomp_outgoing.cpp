// What it takes to connect to another machine by its name: libcurl over a loop. For the gateway (other nodes) and storage-s3
// (its store), in both filters.
#include <netinet/in.h>
#include <sys/socket.h>

#include "abi/layout/seccomp_rule.hpp"

namespace hf::layout {
namespace {

constexpr Rule kOutgoing[] = {
    {"socket", arg_is(0, AF_INET), "connections to other machines; questions of the resolver"},
    {"socket", arg_is(0, AF_INET6), "connections to other machines; questions of the resolver"},
    {"socket", arg_is(0, AF_UNIX), "name service caches"},
    {"connect", kAlways, "connections to other machines"},
    {"setsockopt", kAlways, "TCP_NODELAY, keep-alive, send buffers"},
    {"getpeername", kAlways, "libcurl tells who it is connected to; a gateway, who asks"},
    {"sendmmsg", kAlways, "the resolver asks A and AAAA at once"},
    {"recvmmsg", kAlways, "the resolver"},
    {"socketpair",
     arg_is(0, AF_UNIX),
     "libcurl's resolver thread and libuv wake their loop by one"},
    {"timerfd_settime", kAlways, "timers of the loop"},
};

}  // namespace

const Rules kAllowOutgoing{kOutgoing};

}  // namespace hf::layout
