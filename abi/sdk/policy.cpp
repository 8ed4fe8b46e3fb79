// Placement and drain policies on top of Plugin: turns verified tables into views and outcomes into answers. It passes an
// outcome on as the policy gave it; the supervisor judges it, because a swap must see a bad answer as one.
#include "abi/sdk/policy.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "abi/base/hash.hpp"
#include "abi/base/limits.hpp"
#include "abi/sdk/plugin.hpp"

namespace hf::sdk {

namespace {

// Bounds of the words in one answer: 64 rejections of 64 bytes (92 with their tables) and 16 counted filters of 32 bytes
// are 6.8 KiB of the 8 KiB that an answer to Place may take. The scheduler has six filters.
constexpr std::size_t kReasonBytesMax = 64;
constexpr std::size_t kFilterBytesMax = 32;
constexpr std::size_t kFiltersMax = 16;
constexpr int kExitUsage = 2;

std::string_view view_of(const flatbuffers::String* text) {
    return text == nullptr ? std::string_view() : std::string_view(text->data(), text->size());
}

// A reason is cut visibly, so that nobody takes a part for the whole.
std::string shortened(std::string_view reason) {
    if (reason.size() <= kReasonBytesMax) return std::string(reason);
    return std::string(reason.substr(0, kReasonBytesMax - 3)) + "...";
}

std::string known_names(std::span<const PolicyEntry> entries, abi::Kind kind) {
    std::string names;
    for (const PolicyEntry& entry : entries) {
        if ((kind == abi::Kind::Placement) ? entry.placement == nullptr : entry.drain == nullptr)
            continue;
        if (!names.empty()) names += ", ";
        names += entry.name;
    }
    return names;
}

class PolicyPlugin final : public Plugin {
public:
    PolicyPlugin(std::span<const PolicyEntry> entries,
                 abi::Kind kind,
                 std::string_view name,
                 std::string_view version)
        : entries_(entries), kind_(kind), name_(name), version_(version) {
        candidates_.resize(kCandidatesMax);
    }

    [[nodiscard]] Identity identity() const override {
        Identity out{kind_, name_, version_, {}, {}};
        for (const PolicyEntry& entry : entries_)
            if ((kind_ == abi::Kind::Placement) ? entry.placement != nullptr
                                                : entry.drain != nullptr)
                out.policies.emplace_back(entry.name);
        return out;
    }

    Result<void> configure(const abi::Configure& configure, Context& context) override {
        context_ = &context;
        seed_ = configure.seed();
        const std::string_view wanted = view_of(configure.policy());
        const PolicyEntry* found = nullptr;
        for (const PolicyEntry& entry : entries_)
            if (entry.name == wanted &&
                ((kind_ == abi::Kind::Placement) ? entry.placement != nullptr
                                                 : entry.drain != nullptr))
                found = &entry;
        if (found == nullptr)
            return fail(Code::NotFound,
                        "there is no policy \"" + std::string(wanted) + "\"; " + name_ + " knows " +
                            known_names(entries_, kind_));
        Settings settings;
        if (configure.settings() != nullptr)
            for (const abi::Setting* setting : *configure.settings())
                settings.emplace_back(setting->key()->str(), setting->value()->str());
        if (kind_ == abi::Kind::Placement) {
            placement_.reset(found->placement());
            return placement_->configure(settings);
        }
        drain_.reset(found->drain());
        return drain_->configure(settings);
    }

    void handle(const Message& message) override {
        switch (message.type) {
            case abi::Body::Place:
                place(message.req_id, message.as<abi::Place>());
                return;
            case abi::Body::Plan:
                plan(message.req_id);
                return;
            case abi::Body::Next:
                next(message.req_id, message.as<abi::Next>());
                return;
            // Candidate tables by version are a capability that this SDK does not offer.
            case abi::Body::View:
            case abi::Body::ViewChanged:
                return;
            default:
                context_->log(
                    abi::LogLevel::Warn,
                    std::string("a policy has no use for ") + abi::EnumNameBody(message.type));
        }
    }

private:
    void place(std::uint64_t req_id, const abi::Place& want) {
        const auto* listed = want.candidates();
        const std::size_t count = listed == nullptr ? 0 : listed->size();
        if (want.view() != 0) {
            answer(req_id, PlaceOutcome::nobody("candidate tables by version are not offered"));
        } else if (count == 0) {
            answer(req_id, PlaceOutcome::nobody("no candidates"));
        } else if (count > kCandidatesMax) {
            answer(req_id, PlaceOutcome::nobody("more than 64 candidates"));
        } else {
            for (std::size_t i = 0; i < count; ++i)
                read_candidate(*listed->Get(static_cast<flatbuffers::uoffset_t>(i)),
                               candidates_[i]);
            PlaceView view;
            view.subject = view_of(want.subject());
            view.class_name = view_of(want.class_name());
            view.sequence = want.sequence();
            view.seed = mix64(seed_ ^ mix64(want.sequence()));
            view.explain = want.explain();
            view.candidates = std::span(candidates_).first(count);
            answer(req_id, placement_->place(view));
        }
    }

    static void read_candidate(const abi::Candidate& in, Candidate& out) {
        out.id = in.id();
        out.node = view_of(in.node());
        out.instance = in.instance();
        out.generation = in.generation();
        out.local = in.local();
        out.resident = in.resident();
        out.capacity = in.capacity();
        out.inflight = in.inflight();
        out.weight = in.weight();
        out.labels.clear();
        if (in.labels() != nullptr)
            for (const abi::Setting* label : *in.labels())
                out.labels.emplace_back(view_of(label->key()), view_of(label->value()));
    }

    // A rejection "capacity: 8 of 8" counts for the filter "capacity".
    void count_filters(const PlaceOutcome& outcome) {
        counts_.clear();
        for (const Rejection& rejection : outcome.rejections) {
            const std::string_view reason = rejection.reason;
            const std::string_view filter =
                reason.substr(0, std::min(reason.find(':'), kFilterBytesMax));
            const auto known = std::find_if(counts_.begin(), counts_.end(), [&](const auto& entry) {
                return entry.first == filter;
            });
            if (known != counts_.end())
                ++known->second;
            else if (counts_.size() < kFiltersMax)
                counts_.emplace_back(filter, 1U);
        }
    }

    void answer(std::uint64_t req_id, const PlaceOutcome& outcome) {
        auto& fbb = context_->builder();
        flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<abi::Rejection>>> rejections;
        flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<abi::FilterCount>>> counts;
        if (!outcome.rejections.empty()) {
            count_filters(outcome);
            rejection_offsets_.clear();
            for (const Rejection& rejection : outcome.rejections)
                rejection_offsets_.push_back(abi::CreateRejection(
                    fbb, rejection.candidate, fbb.CreateString(shortened(rejection.reason))));
            count_offsets_.clear();
            for (const auto& [filter, rejected] : counts_)
                count_offsets_.push_back(abi::CreateFilterCount(
                    fbb, fbb.CreateString(filter.data(), filter.size()), rejected));
            rejections = fbb.CreateVector(rejection_offsets_);
            counts = fbb.CreateVector(count_offsets_);
        }
        flatbuffers::Offset<flatbuffers::String> reason;
        if (!outcome.reason.empty()) reason = fbb.CreateString(shortened(outcome.reason));
        context_->reply(
            req_id,
            abi::CreatePlaced(fbb, outcome.choice, outcome.none, reason, counts, rejections));
    }

    void plan(std::uint64_t req_id) {
        auto& fbb = context_->builder();
        const auto reason = fbb.CreateString("plans of moves are not offered by this policy");
        context_->reply(req_id, abi::CreatePlanned(fbb, 0, reason));
    }

    void next(std::uint64_t req_id, const abi::Next& want) {
        residents_.clear();
        if (want.residents() != nullptr)
            for (const abi::Resident* in : *want.residents())
                residents_.push_back({in->id(),
                                      view_of(in->unit()),
                                      in->busy(),
                                      in->queued(),
                                      in->idle_ms(),
                                      in->sockets(),
                                      in->attempts()});
        DrainView view;
        view.residents = residents_;
        view.remaining = want.remaining();
        view.in_flight = want.in_flight();
        view.in_flight_max = want.in_flight_max();
        if (want.peers() != nullptr)
            view.peers = static_cast<std::uint32_t>(std::count_if(
                want.peers()->begin(), want.peers()->end(), [](const abi::Peer* peer) {
                    return !peer->suspect();
                }));
        view.elapsed_ms = want.elapsed_ms();
        view.deadline_ms = want.deadline_ms();
        const DrainStep step = drain_->next(view);
        auto& fbb = context_->builder();
        const auto hand_over = fbb.CreateVector(step.hand_over);
        flatbuffers::Offset<flatbuffers::String> reason;
        if (!step.reason.empty()) reason = fbb.CreateString(shortened(step.reason));
        context_->reply(req_id,
                        abi::CreateStep(fbb, hand_over, step.wait_ms, step.give_up, reason));
    }

    std::span<const PolicyEntry> entries_;
    abi::Kind kind_;
    std::string name_;
    std::string version_;
    Context* context_ = nullptr;
    std::uint64_t seed_ = 0;
    std::unique_ptr<PlacementPolicy> placement_;
    std::unique_ptr<DrainPolicy> drain_;
    // Reused for every request: the hot path allocates nothing once they have grown.
    std::vector<Candidate> candidates_;
    std::vector<Resident> residents_;
    std::vector<std::pair<std::string_view, std::uint32_t>> counts_;
    std::vector<flatbuffers::Offset<abi::Rejection>> rejection_offsets_;
    std::vector<flatbuffers::Offset<abi::FilterCount>> count_offsets_;
};

// The kind that --kind names, or None.
abi::Kind kind_asked(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; ++i) {
        if (std::string_view(argv[i]) != "--kind") continue;
        const std::string_view kind = argv[i + 1];
        if (kind == "placement") return abi::Kind::Placement;
        if (kind == "drain") return abi::Kind::Drain;
    }
    return abi::Kind::None;
}

}  // namespace

int run_policies(std::span<const PolicyEntry> entries,
                 std::string_view plugin_name,
                 std::string_view version,
                 int argc,
                 char** argv) {
    abi::Kind kind = kind_asked(argc, argv);
    const bool asks_only = argc == 2 && (std::string_view(argv[1]) == "--version" ||
                                         std::string_view(argv[1]) == "--help");
    if (kind == abi::Kind::None && !asks_only) {
        std::fprintf(stderr,
                     "%.*s: --kind placement or --kind drain says which role it plays\n",
                     static_cast<int>(plugin_name.size()),
                     plugin_name.data());
        return kExitUsage;
    }
    if (kind == abi::Kind::None) kind = abi::Kind::Placement;
    PolicyPlugin plugin(entries, kind, plugin_name, version);
    return run_plugin(plugin, argc, argv);
}

}  // namespace hf::sdk
