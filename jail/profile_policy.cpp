// placement and drain: CPU and memory. Until Ready they need what the loader needs, and the second filter takes that.
#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kPolicy[] = {
    {"getdents64", kAlways, "an interpreter finds its modules while it starts"},
    {"timerfd_create", kAlways, "an interpreter's loop"},
    {"timerfd_settime", kAlways, "an interpreter's loop"},
};

}  // namespace

const Rules kAllowPolicy{kPolicy};

}  // namespace hf::jail
