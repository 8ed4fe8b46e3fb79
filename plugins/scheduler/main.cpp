// scheduler: the shipped placement and drain policies in one binary. Which one a process plays is said by --kind and
// the supervisor's Configure. The process has no files, no network and no state worth keeping: when it dies, the same
// request is answered by its successor or by the supervisor's built-in default.
#include <array>

#include "abi/sdk/policy.hpp"
#include "plugins/scheduler/least_loaded.hpp"
#include "plugins/scheduler/paced.hpp"
#include "plugins/scheduler/pinned.hpp"
#include "plugins/scheduler/rendezvous.hpp"
#include "plugins/scheduler/two_choices.hpp"

namespace {

template <class T>
hf::sdk::PlacementPolicy* placement() {
    return new T();
}

template <class T>
hf::sdk::DrainPolicy* drain() {
    return new T();
}

}  // namespace

int main(int argc, char** argv) {
    using namespace hf::scheduler;
    static constexpr std::array<hf::sdk::PolicyEntry, 5> kPolicies{{
        {"rendezvous", placement<Rendezvous>, nullptr},
        {"two-choices", placement<TwoChoices>, nullptr},
        {"least-loaded", placement<LeastLoaded>, nullptr},
        {"pinned", placement<Pinned>, nullptr},
        {"paced", nullptr, drain<Paced>},
    }};
    return hf::sdk::run_policies(kPolicies, "scheduler", HF_VERSION, argc, argv);
}
