#include "plugins/scheduler/eligible.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "abi/base/hash.hpp"

namespace hf::scheduler {

Eligible::Eligible(const sdk::PlaceView& want)
    : explain_(want.explain), offered_(std::min(want.candidates.size(), kCandidatesMax)) {
    // The SDK never shows more than kCandidatesMax; the cut keeps the array's bound true by itself.
    for (const sdk::Candidate& candidate : want.candidates.first(offered_)) {
        if (candidate.capacity != 0 && candidate.resident >= candidate.capacity) {
            ++full_;
            if (explain_)
                reject(candidate,
                       "full: " + std::to_string(candidate.resident) + " of " +
                           std::to_string(candidate.capacity) + " units");
        } else if (candidate.weight == 0) {
            ++weightless_;
            reject(candidate, "weight 0: takes no new units");
        } else {
            fit_[count_++] = &candidate;
        }
    }
}

void Eligible::reject(const sdk::Candidate& candidate, std::string_view why) {
    if (explain_) rejections_.push_back({candidate.id, std::string(why)});
}

sdk::PlaceOutcome Eligible::chosen(const sdk::Candidate& one) {
    sdk::PlaceOutcome out = sdk::PlaceOutcome::chosen(one.id);
    out.rejections = std::move(rejections_);
    return out;
}

sdk::PlaceOutcome Eligible::nobody(std::string_view why) {
    std::string reason(why);
    if (reason.empty()) {
        reason = offered_ == 0 ? "no candidates were offered"
                               : "none of " + std::to_string(offered_) +
                                     " candidates fits: " + std::to_string(full_) + " full, " +
                                     std::to_string(weightless_) + " of weight 0";
    }
    sdk::PlaceOutcome out = sdk::PlaceOutcome::nobody(std::move(reason));
    out.rejections = std::move(rejections_);
    return out;
}

std::uint64_t affinity(std::string_view subject, std::string_view node, std::uint32_t instance) {
    return mix64(fnv1a64(node, fnv1a64(subject)) ^ mix64(std::uint64_t{instance} + 1));
}

namespace {

// Weighted rendezvous: with u uniform in (0, 1), the place with the largest -weight / ln(u) wins with a chance of
// weight / (sum of weights), and taking one place away moves its own subjects only.
double pull(std::uint64_t hash, std::uint32_t weight) {
    // 53 bits are what a double holds exactly; the half keeps u away from 0 and 1.
    const double u = (static_cast<double>(hash >> 11U) + 0.5) * 0x1p-53;
    return -static_cast<double>(weight) / std::log(u);
}

}  // namespace

const sdk::Candidate& strongest(std::string_view subject,
                                std::span<const sdk::Candidate* const> places) {
    // Equal pulls are settled by the full hash and then by name: never by position, which differs between nodes.
    const auto key = [&](const sdk::Candidate& place) {
        const std::uint64_t hash = affinity(subject, place.node, place.instance);
        return std::tuple(pull(hash, place.weight), hash, place.node, place.instance);
    };
    const sdk::Candidate* best = places.front();
    auto best_key = key(*best);
    for (const sdk::Candidate* place : places.subspan(1)) {
        auto place_key = key(*place);
        if (place_key > best_key) {
            best = place;
            best_key = std::move(place_key);
        }
    }
    return *best;
}

Result<void> refuse_settings(std::string_view policy, const sdk::Settings& settings) {
    if (settings.empty()) return {};
    return fail(Code::Invalid,
                "policy " + std::string(policy) + " has no settings, but \"" +
                    settings.front().first + "\" was given");
}

}  // namespace hf::scheduler
