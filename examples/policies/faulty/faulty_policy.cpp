// faulty-policy: a placement plugin that goes wrong in a chosen way, for trying out what the node does about it. It is written
// against the raw plugin interface, because the policy interface does not let an author answer garbage.
//
//   policy     what happens once `after` requests were answered well (100 when not given)
//   crash      SIGSEGV
//   stall      blocks in the request for ever
//   spin       computes on the request for ever
//   mute       takes the request, looks for more, never answers
//   slow       one of `every` requests (50) is answered three deadlines late
//   lie        names a candidate that was not offered
//   garbage    answers bytes that are no Placed
//   exit       exit code 1; without `after` 50 ms after its start, before it is ready
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "abi/base/clock.hpp"
#include "abi/sdk/plugin.hpp"

namespace {

using hf::abi::Place;

constexpr std::int64_t kExitAfterNs = 50'000'000;
// Used when a request carries no deadline: the node's default for one placement.
constexpr std::int64_t kDeadlineNs = 50'000'000;

void sleep_until(std::int64_t when_ns) {
    const std::int64_t left_ns = when_ns - hf::monotonic_ns();
    if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
}

class Faulty final : public hf::sdk::Plugin {
public:
    hf::sdk::Identity identity() const override {
        return {hf::abi::Kind::Placement,
                "faulty-policy",
                "1",
                {"crash", "stall", "spin", "mute", "slow", "lie", "garbage", "exit"},
                {}};
    }

    hf::Result<void> configure(const hf::abi::Configure& configure,
                               hf::sdk::Context& context) override {
        context_ = &context;
        if (configure.policy() != nullptr) policy_ = configure.policy()->str();
        const auto known = identity().policies;
        if (std::find(known.begin(), known.end(), policy_) == known.end())
            return hf::fail(hf::Code::NotFound, "faulty-policy has no policy \"" + policy_ + "\"");
        bool after_given = false;
        if (configure.settings() != nullptr) {
            for (const auto* setting : *configure.settings()) {
                const std::string key = setting->key()->str();
                if (key != "after" && key != "every")
                    return hf::fail(hf::Code::Invalid, "no setting \"" + key + "\"");
                HF_ASSIGN((key == "after" ? after_ : every_), number(key, setting->value()->str()));
                after_given = after_given || key == "after";
            }
        }
        if (policy_ == "exit" && !after_given) {
            sleep_until(started_ns_ + kExitAfterNs);
            ::_exit(1);
        }
        return {};
    }

    void handle(const hf::sdk::Message& message) override {
        if (message.type != hf::abi::Body::Place) return;
        const auto& place = message.as<Place>();
        const bool due = asked_++ >= after_;
        if (due && policy_ != "slow") return misbehave(message, place);
        if (policy_ == "slow" && every_ != 0 && asked_ > after_ && asked_ % every_ == 0) {
            const std::int64_t now = hf::monotonic_ns();
            const std::int64_t deadline =
                message.deadline_ns > now ? message.deadline_ns : now + kDeadlineNs;
            sleep_until(now + 3 * (deadline - now));
        }
        answer(message.req_id, good(place));
    }

private:
    static hf::Result<std::uint64_t> number(const std::string& key, const std::string& text) {
        std::uint64_t value = 0;
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && stop == text.data() + text.size()) return value;
        return hf::fail(hf::Code::Invalid,
                        "\"" + key + "\" is \"" + text + "\", it must be a whole number");
    }

    // Round robin is as good as any.
    std::uint32_t good(const Place& place) const {
        const auto* candidates = place.candidates();
        if (candidates == nullptr || candidates->size() == 0) return 0;
        return candidates->Get(static_cast<flatbuffers::uoffset_t>(asked_ % candidates->size()))
            ->id();
    }

    void answer(std::uint64_t req_id, std::uint32_t choice) {
        context_->reply(req_id, hf::abi::CreatePlaced(context_->builder(), choice));
    }

    void misbehave(const hf::sdk::Message& message, const Place& place) {
        if (policy_ == "crash") {
            volatile int* nowhere = nullptr;
            *nowhere = 1;  // NOLINT(clang-analyzer-core.NullDereference): the point of this program
        } else if (policy_ == "stall") {
            for (;;) sleep_until(hf::monotonic_ns() + 1'000'000'000);
        } else if (policy_ == "spin") {
            for (volatile bool for_ever = true; for_ever;) {
            }
        } else if (policy_ == "lie") {
            std::uint32_t beyond = 0;
            if (place.candidates() != nullptr)
                for (const auto* candidate : *place.candidates())
                    beyond = std::max(beyond, candidate->id());
            answer(message.req_id, beyond + 1000);
        } else if (policy_ == "garbage") {
            // The offset of a table points into a string.
            auto& builder = context_->builder();
            const auto text =
                builder.CreateString("\xff\xff\xff\x7f garbage where a table should be \xff\xff");
            context_->reply(message.req_id, flatbuffers::Offset<hf::abi::Placed>(text.o));
        } else if (policy_ == "exit") {
            ::_exit(1);
        }
        // mute: nothing
    }

    hf::sdk::Context* context_ = nullptr;
    std::string policy_;
    std::uint64_t after_ = 100;
    std::uint64_t every_ = 50;
    std::uint64_t asked_ = 0;
    std::int64_t started_ns_ = hf::monotonic_ns();
};

}  // namespace

int main(int argc, char** argv) {
    return hf::sdk::run<Faulty>(argc, argv);
}
