// runtime-wasm: holds units (wasm actors) and runs their events, one at a time, on the loop thread.
//
// Responsible for: loading the configured modules, a unit's state between events, running guests inside their limits,
// answering with everything an event did, or with the call it waits for. Not for: storing anything (the supervisor does),
// compiling (holdfast-wasm-build did), sending anything but answers, log lines and counters. When this process dies all its
// units turn cold elsewhere and nothing of an unanswered event was visible; when the supervisor dies the process ends.
//
// An event has the thread for one slice at a time. What comes has its first slice at once; of those that need more, the
// one that came first goes on, a slice after each batch of messages (docs/adr/0017).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi/sdk/plugin.hpp"
#include "plugins/runtime-wasm/engine/slots.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"
#include "plugins/runtime-wasm/module/loader.hpp"
#include "plugins/runtime-wasm/serve/log_gate.hpp"
#include "plugins/runtime-wasm/serve/residents.hpp"

namespace hf::wasm {

class RuntimeWasm final : public sdk::Plugin {
public:
    [[nodiscard]] sdk::Identity identity() const override;
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override;
    void handle(const sdk::Message& message) override;
    void batch_done() override;
    bool work() override;
    void sleeps() override { worker_->rest(); }

private:
    // A request whose event was preempted.
    struct Aside {
        std::uint64_t req_id = 0;
        std::uint64_t activation = 0;
        EventName event;
        std::int64_t deadline_ns = 0;
    };
    const ActorClass& load_class(const abi::Module& wanted);
    void prepare(const sdk::Message& message);
    void activate(const sdk::Message& message);
    Result<void> activate_piece(const abi::Activate& piece);
    void deliver(const sdk::Message& message);
    void resume(const sdk::Message& message);
    void settle(const Aside& request, const Ran& ran);
    void answer(std::uint64_t req_id, std::uint64_t activation, const Ran& ran);
    void tell_logs(const Event& event, std::string_view unit);
    void checkpoint(const sdk::Message& message);

    struct Counts {
        std::uint64_t events = 0;
        std::uint64_t failed = 0;
        std::uint64_t trapped = 0;
        std::uint64_t deadlines = 0;
        std::uint64_t limits = 0;
        std::uint64_t calls = 0;
        std::uint64_t preemptions = 0;
        friend bool operator==(const Counts&, const Counts&) = default;
    };
    void count(Ended ended);

    sdk::Context* context_ = nullptr;
    hf_host_v1 host_{};
    std::unique_ptr<Worker> worker_;
    std::unique_ptr<SlotPool> pool_;
    std::map<std::string, LoadedModule> modules_;  // by key
    std::map<std::string, ActorClass, std::less<>>
        classes_;                           // stable addresses: units point at them
    std::unique_ptr<Residents> residents_;  // after what it refers to
    std::deque<Aside> aside_;               // the oldest first; kPreemptedMax at most
    LogGate gate_;
    Counts counts_;
    Counts told_;
    std::int64_t told_ns_ = 0;
};

}  // namespace hf::wasm
