#include "plugins/scheduler/least_loaded.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "plugins/scheduler/eligible.hpp"

namespace hf::scheduler {

Result<void> LeastLoaded::configure(const sdk::Settings& settings) {
    return refuse_settings("least-loaded", settings);
}

sdk::PlaceOutcome LeastLoaded::place(const sdk::PlaceView& want) {
    // Equal fractions of 32-bit numbers divide to equal doubles, so ties are seen as ties.
    const auto load = [](const sdk::Candidate& place) {
        return static_cast<double>(place.resident) / static_cast<double>(place.weight);
    };
    Eligible eligible(want);
    if (eligible.empty()) return eligible.nobody();
    double least = std::numeric_limits<double>::infinity();
    for (const sdk::Candidate* place : eligible.all()) least = std::min(least, load(*place));

    std::array<const sdk::Candidate*, kCandidatesMax> tied{};
    std::size_t count = 0;
    for (const sdk::Candidate* place : eligible.all())
        if (load(*place) <= least) tied[count++] = place;
    return eligible.chosen(strongest(want.subject, std::span(tied).first(count)));
}

}  // namespace hf::scheduler
