// storage-s3: libcurl to its endpoint (kAllowOutgoing). The host's network and its names, no directory of its own, no
// writing.
#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kStorageS3[] = {
    {"timerfd_create", kAlways, "timers of the loop"},
};

}  // namespace

const Rules kAllowStorageS3{kStorageS3};

}  // namespace hf::jail
