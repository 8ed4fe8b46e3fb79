// runtime-wasm: loads compiled modules while it is configured, then runs guests on threads of its own. Executable
// mappings are allowed here and taken away by the second filter.
#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kRuntime[] = {
    {"memfd_create", kAlways, "the image of a module that activations map copy-on-write"},
    {"ftruncate", kAlways, "sizes that image"},
    {"pwrite64", kAlways, "fills that image"},
    {"timer_create", kAlways, "CPU deadline of a worker thread"},
    {"timer_settime", kAlways, "CPU deadline of a worker thread"},
    {"timer_gettime", kAlways, "CPU deadline of a worker thread"},
    {"timer_delete", kAlways, "CPU deadline of a worker thread"},
    {"timerfd_create", kAlways, "wall deadline"},
    {"timerfd_settime", kAlways, "wall deadline"},
    {"setitimer", kAlways, "CPU deadline, where per-thread timers are missing"},
    {"sched_setaffinity", kAlways, "workers that stay on a core"},
    {"mlock", kAlways, "slots that must not fault"},
    {"mincore", kAlways, "which pages of a slot are there"},
    {"getdents64", kAlways, "the folder of compiled modules"},
    {"fstatfs", kAlways, "is a file a memfd"},
};

}  // namespace

const Rules kAllowRuntimeWasm{kRuntime};

}  // namespace hf::jail
