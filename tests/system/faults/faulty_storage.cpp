// The shipped storage-local whose answers go wrong as a fault sheet says: it dies between a commit and its answer, is
// slow, does not know, refuses, or opens LMDB without syncs. tests/system/test_faults.py runs it.
#include <lmdb.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>

#include "plugins/storage-local/storage_local.hpp"
#include "tests/system/faults/fault_sheet.hpp"
#include "tests/system/faults/later.hpp"
#include "tests/system/faults/relay.hpp"

namespace {
bool g_no_sync = false;
}  // namespace

// The linker sends the bucket's call here (meson.build: --wrap).
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
int __real_mdb_env_open(MDB_env* env, const char* path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env* env, const char* path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env* env, const char* path, unsigned flags, mdb_mode_t mode) {
    return __real_mdb_env_open(env, path, g_no_sync ? flags | MDB_NOSYNC : flags, mode);
}
// NOLINTEND(bugprone-reserved-identifier)
}

namespace hf::faults {
namespace {

constexpr int kExitAfterCommit = 70;
// A write that is answered unknown and lands later: well after its settling began.
constexpr std::uint64_t kLateMs = 300;

// A put or its answer outside of any builder.
struct Answer {
    abi::Outcome outcome = abi::Outcome::Unknown;
    std::string etag;
    bucket::WriteId write_id;
    std::string reason;
};

std::string text_of(const flatbuffers::String* text) {
    return text == nullptr ? std::string() : text->str();
}

class FaultyStorage final : public sdk::Plugin {
public:
    FaultyStorage() : relay_(*this) {}

    [[nodiscard]] sdk::Identity identity() const override { return storage_.identity(); }

    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override {
        HF_ASSIGN(const bucket::Options options, bucket::read_settings(configure));
        HF_ASSIGN(sheet_, map_fault_sheet(options.directory));
        g_no_sync = sheet_->no_sync != 0;
        random_.seed(sheet_->seed + sheet_->puts);
        relay_.attach(context);
        later_ = std::make_unique<Later>(context);
        return storage_.configure(configure, relay_);
    }

    void handle(const sdk::Message& message) override {
        if (message.type != abi::Body::Put) return storage_.handle(message);
        ++sheet_->puts;
        if (sheet_->refuse != 0) {
            ++sheet_->refused;
            return send(message.req_id,
                        {abi::Outcome::Refused, {}, {}, "no space left (by the test)"});
        }
        if (const auto hit = draw(sheet_->unknown_one_in); hit) return unknown(message);
        put_in(sheet_->delay_ms / 2, message);
    }

    void batch_done() override { storage_.batch_done(); }
    bool shed_done() override { return storage_.shed_done(); }

private:
    // What the storage answers comes through here.
    class Answers final : public Relay {
    public:
        explicit Answers(FaultyStorage& owner) : owner_(owner) {}
        flatbuffers::FlatBufferBuilder& builder() override {
            last_ = &Relay::builder();
            return *last_;
        }
        [[nodiscard]] UniqueFd take_body() override {
            return kept_.valid() ? std::move(kept_) : Relay::take_body();
        }
        // Of a put that is handled later.
        void keep(UniqueFd body) { kept_ = std::move(body); }

    protected:
        void send_reply(std::uint64_t req_id,
                        abi::Body type,
                        flatbuffers::Offset<void> body) override {
            if (type != abi::Body::Stored) return Relay::send_reply(req_id, type, body);
            flatbuffers::FlatBufferBuilder& built = *last_;
            built.Finish(flatbuffers::Offset<abi::Stored>(body.o));
            const auto& stored = *flatbuffers::GetRoot<abi::Stored>(built.GetBufferPointer());
            owner_.committed(req_id, stored);
        }

    private:
        FaultyStorage& owner_;
        flatbuffers::FlatBufferBuilder* last_ = nullptr;
        UniqueFd kept_;
    };

    bool draw(std::uint64_t one_in) { return one_in != 0 && random_() % one_in == 0; }

    // The put again, as a message of its own that lives as long as needed.
    void put_in(std::uint64_t ms, const sdk::Message& message) {
        if (ms == 0) return storage_.handle(message);
        const auto& put = message.as<abi::Put>();
        auto copy = std::make_shared<flatbuffers::FlatBufferBuilder>();
        const auto key = copy->CreateString(text_of(put.key()));
        const auto body = put.body() == nullptr
                              ? flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>>()
                              : copy->CreateVector(put.body()->data(), put.body()->size());
        const auto etag = put.etag() == nullptr ? flatbuffers::Offset<flatbuffers::String>()
                                                : copy->CreateString(put.etag()->str());
        copy->Finish(abi::CreatePut(*copy,
                                    key,
                                    body,
                                    put.condition(),
                                    etag,
                                    put.write_id(),
                                    put.body_token(),
                                    put.body_bytes()));
        sdk::Message later = message;
        auto large = std::make_shared<UniqueFd>(relay_.inner().take_body());
        later_->run_in(ms, [this, copy, later, large]() mutable {
            later.body = flatbuffers::GetRoot<abi::Put>(copy->GetBufferPointer());
            relay_.keep(std::move(*large));
            storage_.handle(later);
            storage_.batch_done();
        });
    }

    void unknown(const sdk::Message& message) {
        const Answer answer{abi::Outcome::Unknown, {}, {}, "no answer (by the test)"};
        switch (random_() % 3) {
            case 0:
                ++sheet_->unknown_stored;
                lying_.insert(message.req_id);
                return put_in(sheet_->delay_ms / 2, message);
            case 1:
                ++sheet_->unknown_late;
                silent_.insert(message.req_id);
                put_in(kLateMs, message);
                return send_in(sheet_->delay_ms, message.req_id, answer);
            default:
                ++sheet_->unknown_lost;
                return send_in(sheet_->delay_ms, message.req_id, answer);
        }
    }

    void committed(std::uint64_t req_id, const abi::Stored& stored) {
        if (silent_.erase(req_id) != 0) return;  // answered long ago
        Answer answer{stored.outcome(), text_of(stored.etag()), {}, text_of(stored.reason())};
        if (stored.write_id() != nullptr)
            answer.write_id = {stored.write_id()->hi(), stored.write_id()->lo()};
        if (lying_.erase(req_id) != 0)
            answer = {abi::Outcome::Unknown, {}, {}, "no answer (by the test)"};
        else if (stored.outcome() == abi::Outcome::Applied)
            maybe_die(answer.write_id);
        send_in(sheet_->delay_ms / 2, req_id, std::move(answer));
    }

    void maybe_die(bucket::WriteId write_id) {
        auto* const end = sheet_->died_on + FaultSheet::kRemembered;
        if (sheet_->die_one_in == 0 || std::find(sheet_->died_on, end, write_id) != end ||
            !draw(sheet_->die_one_in))
            return;
        sheet_->died_on[sheet_->slot++ % FaultSheet::kRemembered] = write_id;
        ++sheet_->deaths;
        std::_Exit(kExitAfterCommit);
    }

    void send_in(std::uint64_t ms, std::uint64_t req_id, Answer answer) {
        if (ms == 0) return send(req_id, answer);
        later_->run_in(ms, [this, req_id, answer = std::move(answer)] { send(req_id, answer); });
    }

    void send(std::uint64_t req_id, const Answer& answer) {
        flatbuffers::FlatBufferBuilder& builder = relay_.inner().builder();
        const auto etag = answer.etag.empty() ? flatbuffers::Offset<flatbuffers::String>()
                                              : builder.CreateString(answer.etag);
        const auto reason = answer.reason.empty() ? flatbuffers::Offset<flatbuffers::String>()
                                                  : builder.CreateString(answer.reason);
        const abi::WriteId write_id(answer.write_id.hi, answer.write_id.lo);
        relay_.inner().reply(req_id,
                             abi::CreateStored(builder, answer.outcome, etag, &write_id, reason));
    }

    Answers relay_;
    FaultSheet* sheet_ = nullptr;
    std::mt19937_64 random_;
    std::unordered_set<std::uint64_t> lying_;   // stored, and answered unknown
    std::unordered_set<std::uint64_t> silent_;  // answered unknown, and stored after that
    bucket::StorageLocal storage_;
    std::unique_ptr<Later> later_;  // after what it calls
};

}  // namespace
}  // namespace hf::faults

int main(int argc, char** argv) {
    return hf::sdk::run<hf::faults::FaultyStorage>(argc, argv);
}
