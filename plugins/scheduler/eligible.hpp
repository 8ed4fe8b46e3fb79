// What every placement policy of this plugin shares: who may take one more unit, why the others may not, and how
// strongly a subject belongs to a place. It decides nothing by itself. Everything here is a function of its arguments:
// no clock, file or random device, so that a replayed or shadowed request gets the same answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "abi/base/limits.hpp"
#include "abi/sdk/policy.hpp"

namespace hf::scheduler {

// The candidates of one request that may take one more unit, in the order they were offered. The pointers are those
// of the view and live as long as it does. Bounded by the ABI: one request carries at most kCandidatesMax candidates.
class Eligible {
public:
    // Drops the full ones and those of weight 0.
    explicit Eligible(const sdk::PlaceView& want);

    // Keeps only what `keep` likes. When it drops one it says why; `why` must be a string literal or outlive the view.
    template <class Keep>
    void filter(Keep keep, std::string_view why) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < count_; ++i) {
            if (keep(*fit_[i]))
                fit_[kept++] = fit_[i];
            else
                reject(*fit_[i], why);
        }
        count_ = kept;
    }

    [[nodiscard]] std::span<const sdk::Candidate* const> all() const {
        return {fit_.data(), count_};
    }
    [[nodiscard]] bool empty() const { return count_ == 0; }

    // The answer "this one"; every other candidate that could have been taken is not a rejection and is not listed.
    [[nodiscard]] sdk::PlaceOutcome chosen(const sdk::Candidate& one);
    // The answer "nobody": `why`, or what the filters of this class dropped when it is empty.
    [[nodiscard]] sdk::PlaceOutcome nobody(std::string_view why = {});

private:
    void reject(const sdk::Candidate& candidate, std::string_view why);

    bool explain_;
    std::size_t offered_;
    std::size_t full_ = 0;
    std::size_t weightless_ = 0;
    std::size_t count_ = 0;
    std::array<const sdk::Candidate*, kCandidatesMax> fit_{};
    std::vector<sdk::Rejection> rejections_;
};

// How strongly a subject belongs to (node, instance): the same on every machine and in every release, and the same as in the
// supervisor's built-in default, so that a node whose policy process is gone goes on placing as before. The generation takes
// no part, so a restarted instance gets its own units back.
[[nodiscard]] std::uint64_t affinity(std::string_view subject,
                                     std::string_view node,
                                     std::uint32_t instance);

// The rendezvous winner among `places`, which must not be empty: weights are honoured, the order of the places is
// not looked at.
[[nodiscard]] const sdk::Candidate& strongest(std::string_view subject,
                                              std::span<const sdk::Candidate* const> places);

// Policies without settings refuse every key: a misspelt one must not pass in silence.
[[nodiscard]] Result<void> refuse_settings(std::string_view policy, const sdk::Settings& settings);

}  // namespace hf::scheduler
