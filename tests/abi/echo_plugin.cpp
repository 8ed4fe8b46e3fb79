// A storage plugin that only tests start: answers Get with the key's bytes as the body and their checksum as the etag, in
// the order asked. Keys that begin with '!' make it break a rule of its own. It runs outside the jail, so it lays no filter on itself.
#include <csignal>
#include <cstring>
#include <string_view>

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
        const std::string_view order = key->string_view();
        if (order == "!crash") std::raise(SIGSEGV);
        if (order == "!silent") return;
        answer(message.req_id, order, order == "!large" ? 66'000 : 0);
        if (order == "!twice") answer(message.req_id, order, 0);
    }

private:
    void answer(std::uint64_t req_id, std::string_view key, std::size_t extra) {
        auto& fbb = context_->builder();
        std::uint8_t* bytes = nullptr;
        const auto body = fbb.CreateUninitializedVector(key.size() + extra, &bytes);
        std::memcpy(bytes, key.data(), key.size());
        hf::abi::GotBuilder got(fbb);
        got.add_outcome(hf::abi::Outcome::Applied);
        got.add_body(body);
        const hf::abi::WriteId sum(hf::fnv1a64(key), key.size());
        got.add_write_id(&sum);
        context_->reply(req_id, got.Finish());
    }

    hf::sdk::Context* context_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
    return hf::sdk::run<Echo>(argc, argv);
}
