#include "plugins/scheduler/two_choices.hpp"

#include <array>
#include <utility>

#include "abi/base/hash.hpp"
#include "plugins/scheduler/eligible.hpp"

namespace hf::scheduler {

namespace {

// A number below `bound` from 64 random bits: the high half of a 32 x 32 multiplication. bound <= 64, so no value
// is more likely than another by more than 2^-26.
std::size_t below(std::uint64_t random, std::size_t bound) {
    return static_cast<std::size_t>(((random >> 32U) * bound) >> 32U);
}

// Units and events there, for the place's size: its share of a capacity when both have one, else its weight.
double load(const sdk::Candidate& place, bool by_capacity) {
    const double size = static_cast<double>(place.weight) *
                        (by_capacity ? static_cast<double>(place.capacity) : 1.0);
    return (static_cast<double>(place.resident) + static_cast<double>(place.inflight)) / size;
}

}  // namespace

Result<void> TwoChoices::configure(const sdk::Settings& settings) {
    return refuse_settings("two-choices", settings);
}

sdk::PlaceOutcome TwoChoices::place(const sdk::PlaceView& want) {
    Eligible eligible(want);
    if (eligible.empty()) return eligible.nobody();
    const auto places = eligible.all();
    if (places.size() == 1) return eligible.chosen(*places.front());

    const std::uint64_t first_draw = mix64(want.seed);
    const std::size_t first = below(first_draw, places.size());
    std::size_t second = below(mix64(first_draw), places.size() - 1);
    if (second >= first) ++second;  // the one already drawn is left out

    const sdk::Candidate& a = *places[first];
    const sdk::Candidate& b = *places[second];
    const bool by_capacity = a.capacity != 0 && b.capacity != 0;
    const double load_a = load(a, by_capacity);
    const double load_b = load(b, by_capacity);
    if (load_a < load_b) return eligible.chosen(a);
    if (load_b < load_a) return eligible.chosen(b);
    const std::array tied{&a, &b};
    return eligible.chosen(strongest(want.subject, tied));
}

}  // namespace hf::scheduler
