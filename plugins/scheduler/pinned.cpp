#include "plugins/scheduler/pinned.hpp"

#include <algorithm>

#include "plugins/scheduler/eligible.hpp"
#include "plugins/scheduler/number.hpp"

namespace hf::scheduler {

Result<void> Pinned::configure(const sdk::Settings& settings) {
    std::optional<std::uint32_t> instance;
    std::string node;
    for (const auto& [key, value] : settings) {
        if (key == "instance") {
            HF_ASSIGN(instance, whole_number("pinned", key, value, 0, UINT32_MAX));
        } else if (key == "node") {
            if (value.empty())
                return fail(Code::Invalid, "policy pinned: \"node\" must not be empty");
            node = value;
        } else {
            return fail(Code::Invalid,
                        "policy pinned has no setting \"" + key + "\"; it has instance and node");
        }
    }
    if (!instance && node.empty()) instance = 0;
    instance_ = instance;
    node_ = node;
    return {};
}

bool Pinned::matches(const sdk::Candidate& place) const {
    return (!instance_ || place.instance == *instance_) && (node_.empty() || place.node == node_);
}

std::string Pinned::pin_text() const {
    std::string text = instance_ ? "instance " + std::to_string(*instance_) : "any instance";
    text += node_.empty() ? " of any node" : " of node " + node_;
    return text;
}

sdk::PlaceOutcome Pinned::place(const sdk::PlaceView& want) {
    const bool present = std::any_of(
        want.candidates.begin(), want.candidates.end(), [this](const sdk::Candidate& place) {
            return matches(place);
        });
    Eligible eligible(want);
    eligible.filter([this](const sdk::Candidate& place) { return matches(place); },
                    "pinned elsewhere");
    if (eligible.empty())
        return eligible.nobody(
            "pinned to " + pin_text() +
            (present ? ", which takes no more units" : ", which is not offered"));

    const auto places = eligible.all();
    if (std::any_of(
            places.begin(), places.end(), [](const sdk::Candidate* place) { return place->local; }))
        eligible.filter([](const sdk::Candidate& place) { return place.local; },
                        "pinned to this node first");
    return eligible.chosen(strongest(want.subject, eligible.all()));
}

}  // namespace hf::scheduler
