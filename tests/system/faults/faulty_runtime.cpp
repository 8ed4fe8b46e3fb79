// The shipped runtime-wasm that goes wrong at an event whose bytes hold a marker. tests/system/test_faults.py and
// test_bulk.py run it.
//   end-this-process   dies by SIGSEGV while it runs the event, as a process would whose engine has a bug
//   body-not-sealed    a large answer is a file that it could still change
//   body-too-short     is smaller than it says
//   body-no-file       is the end of a pipe
#include <unistd.h>

#include <string_view>

#include "abi/ring/bodies.hpp"

#include "plugins/runtime-wasm/plugin.hpp"
#include "tests/system/faults/relay.hpp"

namespace hf::faults {
namespace {

class FaultyRuntime final : public sdk::Plugin {
public:
    [[nodiscard]] sdk::Identity identity() const override { return runtime_.identity(); }
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override {
        relay_.attach(context);
        return runtime_.configure(configure, relay_);
    }
    void handle(const sdk::Message& message) override {
        relay_.event = {};
        if (message.type == abi::Body::Deliver) {
            const auto* event = message.as<abi::Deliver>().event();
            // SAFETY: bytes seen as characters.
            if (event != nullptr)
                relay_.event = {reinterpret_cast<const char*>(event->data()), event->size()};
        }
        runtime_.handle(message);
    }
    void batch_done() override { runtime_.batch_done(); }
    bool work() override { return runtime_.work(); }
    void sleeps() override { runtime_.sleeps(); }

private:
    class Wrong final : public Relay {
    public:
        // The runtime says what it works on right before it runs it: that is the moment.
        void set_current(std::uint64_t req_id) override {
            Relay::set_current(req_id);
            if (req_id == 0 || !says("end-this-process")) return;
            volatile int* volatile nowhere = nullptr;
            *nowhere = 1;
        }
        [[nodiscard]] std::uint64_t carry(int fd, std::uint64_t bytes) override {
            if (says("body-no-file")) return Relay::carry(STDERR_FILENO, bytes);
            const bool open = says("body-not-sealed");
            if (!open && !says("body-too-short")) return Relay::carry(fd, bytes);
            auto made = ring::make_body("hf-wrong-body");
            HF_CHECK(made.ok(), "a memory file");
            const Bytes zeroes(open ? bytes : bytes - 1);
            HF_CHECK(ring::append_body(made->get(), zeroes.data(), zeroes.size()).ok(), "memory");
            if (!open) HF_CHECK(ring::seal_body(made->get()).ok(), "a sealed file");
            wrong_ = std::move(made).value();
            return Relay::carry(wrong_.get(), bytes);
        }
        std::string_view event;

    private:
        [[nodiscard]] bool says(std::string_view marker) const {
            return event.find(marker) != std::string_view::npos;
        }
        UniqueFd wrong_;  // until it is sent
    };

    Wrong relay_;
    wasm::RuntimeWasm runtime_;
};

}  // namespace
}  // namespace hf::faults

int main(int argc, char** argv) {
    return hf::sdk::run<hf::faults::FaultyRuntime>(argc, argv);
}
