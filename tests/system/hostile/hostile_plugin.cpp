// A plugin that greets, is configured and answers as it should, and then does what its settings say:
//
//   mode    the attack, see attacks.cpp; "good": none
//   after   so many requests are answered well first
//   at, value   the attack's own numbers
//
// As a placement policy it answers well between; of every other kind it attacks at the first request. Started under the name
// hostile-mute it never greets, as hostile-kind it greets as another kind, as hostile-names with 60 000 bytes of names, as
// hostile-late it never becomes ready, as hostile-exit it says something on stderr and ends after 50 ms.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "abi/layout/attach.hpp"
#include "tests/system/hostile/link.hpp"

namespace hf::hostile {
namespace {

class Hostile {
public:
    Hostile(Link& link, abi::Kind kind, std::string_view name)
        : link_(link), kind_(kind), name_(name) {}

    void greet() {
        auto& fbb = link_.builder;
        fbb.Clear();
        std::vector<flatbuffers::Offset<flatbuffers::String>> policies{fbb.CreateString("hostile")};
        if (name_ == "hostile-names")
            for (int i = 0; i < 1000; ++i)
                policies.push_back(fbb.CreateString(std::string(60, 'n')));
        const auto list = fbb.CreateVector(policies);
        const auto text = fbb.CreateString("hostile");
        const auto kind = name_ == "hostile-kind" ? abi::Kind::Storage : kind_;
        (void)link_.say(abi::CreateGreet(fbb, 0, 0, kind, text, text, list));
    }

    void take(const layout::RecordHeader& header, const abi::Envelope& envelope) {
        if (header.req_id == 0) {
            if (envelope.body_type() == abi::Body::Stop) ::_exit(0);
            return;
        }
        if (envelope.body_type() == abi::Body::Configure)
            return configure(header.req_id, *envelope.body_as_Configure());
        if (!attacking_ && (kind_ != abi::Kind::Placement || asked_ >= plan_.after)) {
            attacking_ = true;
            if (attack(link_, plan_, header.req_id, layout::kControlFd)) return;
        }
        ++asked_;
        if (const auto* place = envelope.body_as_Place()) answer(header.req_id, *place);
    }

    [[nodiscard]] bool between() const { return attacking_ && hostile::between(link_, plan_); }

private:
    void configure(std::uint64_t req_id, const abi::Configure& configure) {
        if (configure.settings() != nullptr) {
            for (const auto* setting : *configure.settings()) {
                const std::string key = setting->key()->str();
                const std::string value = setting->value()->str();
                if (key == "mode") plan_.mode = value;
                if (key == "after") plan_.after = std::stoull(value);
                if (key == "at") plan_.at = std::stoull(value);
                if (key == "value") plan_.value = static_cast<std::uint64_t>(std::stoll(value));
            }
        }
        if (name_ == "hostile-late") return;
        link_.builder.Clear();
        (void)link_.say(abi::CreateReady(link_.builder, true), req_id);
    }

    void answer(std::uint64_t req_id, const abi::Place& place) {
        std::uint32_t choice = 0;
        if (const auto* candidates = place.candidates();
            candidates != nullptr && candidates->size() != 0)
            choice =
                candidates->Get(static_cast<flatbuffers::uoffset_t>(asked_ % candidates->size()))
                    ->id();
        link_.builder.Clear();
        const auto placed = abi::CreatePlaced(link_.builder, choice);
        const Bytes bytes = link_.finish(abi::Body::Placed, placed.Union(), req_id);
        // In the middle of a flood of its own it takes its turn, so that the flood lasts.
        while (!link_.write(abi::Body::Placed, 0, bytes)) (void)::sched_yield();
    }

    Link& link_;
    abi::Kind kind_;
    std::string_view name_;
    Plan plan_;
    std::uint64_t asked_ = 0;
    bool attacking_ = false;
};

abi::Kind kind_named(std::string_view name) {
    if (name == "gateway") return abi::Kind::Gateway;
    if (name == "storage") return abi::Kind::Storage;
    if (name == "runtime") return abi::Kind::Runtime;
    return name == "drain" ? abi::Kind::Drain : abi::Kind::Placement;
}

int run(int argc, char** argv) {
    const std::string_view path = argc > 0 ? argv[0] : "";
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name == "hostile-exit") {
        ::usleep(50'000);
        (void)std::fputs("hostile: the stars are out \xff\xfe\nhostile: I cannot find my moon\n",
                         stderr);
        return 1;
    }
    if (argc < 3 || std::string_view(argv[1]) != "--kind") return 2;
    auto attachment = sdk::receive_attachment(layout::kControlFd);
    if (!attachment) return 1;
    Link link(std::move(attachment).value());
    Hostile hostile(link, kind_named(argv[2]), name);
    if (name != "hostile-mute") hostile.greet();
    for (;;) {
        link.end.awake();
        layout::RecordHeader header{};
        BytesView payload;
        while (link.end.in().next(header, payload) == ring::Consumer::Next::Record)
            hostile.take(header, *abi::GetEnvelope(payload.data()));
        if (hostile.between() || !link.end.before_block(false, false)) continue;
        pollfd wait[] = {{link.end.bell_fd(), POLLIN, 0}, {layout::kControlFd, POLLIN, 0}};
        if (::poll(wait, 2, -1) < 0) return 1;
        if ((wait[1].revents & POLLHUP) != 0) return 0;
    }
}

}  // namespace
}  // namespace hf::hostile

int main(int argc, char** argv) {
    return hf::hostile::run(argc, argv);
}
