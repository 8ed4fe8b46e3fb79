// A storage plugin that only tests start: answers Get with the key's bytes as the body and their checksum as the etag, in
// the order asked. It runs outside the jail, so it lays no filter on itself.
#include <string>

#include "abi/base/hash.hpp"
#include "abi/sdk/lockdown.hpp"
#include "abi/sdk/plugin.hpp"

namespace hf::sdk {

Result<void> lock_down(abi::Kind kind, const char* profile, volatile unsigned* report) {
    (void)kind;
    (void)profile;
    (void)report;
    return {};
}

}  // namespace hf::sdk

namespace {

class Echo final : public hf::sdk::Plugin {
public:
    [[nodiscard]] hf::sdk::Identity identity() const override {
        return {hf::abi::Kind::Storage, "echo", "1", {}, {}};
    }
    hf::Result<void> configure(const hf::abi::Configure& configure,
                               hf::sdk::Context& context) override {
        (void)configure;
        context_ = &context;
        return {};
    }
    void handle(const hf::sdk::Message& message) override {
        if (message.type != hf::abi::Body::Get) return;
        const auto* key = message.as<hf::abi::Get>().key();
        auto& fbb = context_->builder();
        const auto body = fbb.CreateVector(key->Data(), key->size());
        hf::abi::GotBuilder got(fbb);
        got.add_outcome(hf::abi::Outcome::Applied);
        got.add_body(body);
        const hf::abi::WriteId sum(hf::fnv1a64({key->c_str(), key->size()}), key->size());
        got.add_write_id(&sum);
        context_->reply(message.req_id, got.Finish());
    }

private:
    hf::sdk::Context* context_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
    return hf::sdk::run<Echo>(argc, argv);
}
