#include "plugins/scheduler/paced.hpp"

#include <algorithm>
#include <cstddef>

#include "plugins/scheduler/number.hpp"

namespace hf::scheduler {

namespace {

// Beyond this a drain no longer paces: 1024 is the most residents one window can carry in a record.
constexpr std::uint32_t kInFlightMax = 1024;
// The supervisor asks again sooner when a hand-over ends; 50 ms only bounds the silence when nothing changes.
constexpr std::uint32_t kWaitMs = 50;

}  // namespace

Result<void> Paced::configure(const sdk::Settings& settings) {
    for (const auto& [key, value] : settings) {
        if (key != "in_flight_max")
            return fail(Code::Invalid,
                        "policy paced has no setting \"" + key + "\"; it has in_flight_max");
        HF_ASSIGN(in_flight_max_, whole_number("paced", key, value, 1, kInFlightMax));
    }
    return {};
}

sdk::DrainStep Paced::next(const sdk::DrainView& view) {
    sdk::DrainStep step;
    step.wait_ms = kWaitMs;
    if (view.peers == 0) {
        step.reason = "no eligible peer to hand over to";
        return step;
    }
    // 0 from the supervisor means that it sets no bound of its own.
    const std::uint32_t bound =
        view.in_flight_max == 0 ? in_flight_max_ : std::min(in_flight_max_, view.in_flight_max);
    const std::size_t room = bound > view.in_flight ? bound - view.in_flight : 0;
    for (const bool tried : {false, true})
        for (const sdk::Resident& resident : view.residents)
            if (step.hand_over.size() < room && (resident.attempts > 0) == tried)
                step.hand_over.push_back(resident.id);
    return step;
}

}  // namespace hf::scheduler
