// The shipped runtime-wasm that dies by SIGSEGV while it runs an event whose bytes hold a marker, as a process would
// whose engine has a bug that this event finds. tests/system/test_faults.py runs it.
#include <string_view>

#include "plugins/runtime-wasm/plugin.hpp"
#include "tests/system/faults/relay.hpp"

namespace hf::faults {
namespace {

constexpr std::string_view kMarker = "end-this-process";

class FaultyRuntime final : public sdk::Plugin {
public:
    [[nodiscard]] sdk::Identity identity() const override { return runtime_.identity(); }
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override {
        relay_.attach(context);
        return runtime_.configure(configure, relay_);
    }
    void handle(const sdk::Message& message) override {
        relay_.marked = false;
        if (message.type == abi::Body::Deliver) {
            const auto* event = message.as<abi::Deliver>().event();
            // SAFETY: bytes seen as characters.
            relay_.marked =
                event != nullptr &&
                std::string_view(reinterpret_cast<const char*>(event->data()), event->size())
                        .find(kMarker) != std::string_view::npos;
        }
        runtime_.handle(message);
    }
    void batch_done() override { runtime_.batch_done(); }

private:
    // The runtime says what it works on right before it runs it: that is the moment.
    class Current final : public Relay {
    public:
        void set_current(std::uint64_t req_id) override {
            Relay::set_current(req_id);
            if (req_id == 0 || !marked) return;
            volatile int* volatile nowhere = nullptr;
            *nowhere = 1;
        }
        bool marked = false;
    };

    Current relay_;
    wasm::RuntimeWasm runtime_;
};

}  // namespace
}  // namespace hf::faults

int main(int argc, char** argv) {
    return hf::sdk::run<hf::faults::FaultyRuntime>(argc, argv);
}
