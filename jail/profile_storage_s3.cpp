// storage-s3: libcurl to its endpoint. The host's network and its names, no directory of its own, no writing.
#include <netinet/in.h>
#include <sys/socket.h>

#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kStorageS3[] = {
    {"socket", arg_is(0, AF_INET), "connections to the store; questions of the resolver"},
    {"socket", arg_is(0, AF_INET6), "connections to the store; questions of the resolver"},
    {"socket", arg_is(0, AF_UNIX), "name service caches"},
    {"connect", kAlways, "connections to the store"},
    {"setsockopt", kAlways, "TCP_NODELAY, keep-alive"},
    {"getpeername", kAlways, "libcurl tells who it is connected to"},
    {"sendmmsg", kAlways, "the resolver asks A and AAAA at once"},
    {"recvmmsg", kAlways, "the resolver"},
    {"socketpair", arg_is(0, AF_UNIX), "libcurl's resolver thread wakes its loop by one"},
    {"timerfd_create", kAlways, "timers of the loop"},
    {"timerfd_settime", kAlways, "timers of the loop"},
};

}  // namespace

const Rules kAllowStorageS3{kStorageS3};

}  // namespace hf::jail
