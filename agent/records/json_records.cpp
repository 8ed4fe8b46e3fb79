// Holds and the `store` record as JSON. Keys are sorted and nothing is indented, so the same struct gives the same bytes.
#include <limits>
#include <string>
#include <utility>

#include "agent/base/bounded_json.hpp"
#include "agent/records/encodings.hpp"
#include "agent/records/records.hpp"

namespace hf::records {

namespace {

using nlohmann::json;

constexpr std::uint32_t kVersion = 1;
// A new source gets Busy at 4096 unsettled ones; twice that leaves room for a writer with another bound.
constexpr std::size_t kAppliedMax = 8192;
constexpr std::size_t kIdBytesMax =
    1024;  // no name in a record is longer than a key of the store may be
constexpr std::size_t kNonceDigits = 32;

[[nodiscard]] Error corrupt(std::string_view what, const std::string& why) {
    return fail(Code::Corrupt, std::string(what) + ": " + why);
}

// Takes the known members out of an object one by one; what is left at the end is what this version does not know.
// The first wrong member wins; later calls then do nothing.
class Taker {
public:
    explicit Taker(json object) : object_(std::move(object)) {}

    void number(const char* key,
                std::uint64_t& out,
                std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
        const auto member = take(key);
        if (!member) return;
        if (!member->is_number_unsigned() || member->get<std::uint64_t>() > most)
            complain(key, "is not a whole number in its range");
        else
            out = member->get<std::uint64_t>();
    }
    void text(const char* key, std::string& out) {
        const auto member = take(key);
        if (!member) return;
        if (!member->is_string() || member->get_ref<const std::string&>().size() > kIdBytesMax)
            complain(key, "is not a string of at most 1024 bytes");
        else
            out = member->get<std::string>();
    }
    [[nodiscard]] std::optional<json> take(const char* key) {
        const auto found = object_.find(key);
        if (!error_.empty() || found == object_.end()) return std::nullopt;
        json member = std::move(*found);
        object_.erase(found);
        return member;
    }
    void complain(const char* key, const char* why) {
        if (error_.empty()) error_ = "member '" + std::string(key) + "' " + why;
    }
    [[nodiscard]] const std::string& error() const { return error_; }
    [[nodiscard]] std::string rest() const {
        return object_.empty() ? std::string() : object_.dump();
    }

private:
    json object_;
    std::string error_;
};

[[nodiscard]] Result<Taker> open(std::string_view what, BytesView bytes) {
    if (bytes.size() > kTextRecordBytesMax)
        return corrupt(what, "is " + std::to_string(bytes.size()) + " bytes long");
    auto parsed = base::parse_bounded(as_text(bytes));
    if (!parsed || !parsed->is_object()) return corrupt(what, "is not a JSON object");
    return Taker(std::move(*parsed));
}

// Fields that a newer version left come first and give way to what we know.
[[nodiscard]] json begin(const std::string& unknown) {
    if (!unknown.empty())
        if (auto parsed = base::parse_bounded(unknown); parsed && parsed->is_object())
            return std::move(*parsed);
    return json::object();
}

[[nodiscard]] Bytes finish(const json& object) {
    // `replace`: a name that is not UTF-8 must not end the process; names are ASCII by construction.
    const std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
    return {text.begin(), text.end()};
}

[[nodiscard]] bool lower_hex(std::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void take_applied(Taker& taker, std::map<std::string, std::uint64_t>& out) {
    const auto member = taker.take("applied");
    if (!member) return;
    if (!member->is_object() || member->size() > kAppliedMax)
        return taker.complain("applied", "is not an object in its bound");
    for (const auto& [source, seq] : member->items()) {
        if (!seq.is_number_unsigned() || source.size() > kIdBytesMax)
            return taker.complain("applied",
                                  "maps a source to something that is not a whole number");
        out.emplace(source, seq.get<std::uint64_t>());
    }
}

void take_snapshot(Taker& taker, std::optional<core::Snapshot>& out) {
    auto member = taker.take("snapshot");
    if (!member) return;
    if (!member->is_object()) return taker.complain("snapshot", "is not an object");
    Taker inner(std::move(*member));
    core::Snapshot snapshot;
    inner.text("reference", snapshot.reference);
    inner.number("generation", snapshot.generation);
    inner.text("state", snapshot.state);
    if (!inner.error().empty()) return taker.complain("snapshot", "has a member of the wrong type");
    out = std::move(snapshot);
}

}  // namespace

Bytes encode_hold(const core::HoldRecord& record) {
    json object = begin(record.unknown);
    object["version"] = record.version;
    object["epoch"] = record.epoch;
    object["state"] = record.state == core::HoldState::Held ? "held" : "free";
    object["owner"] = record.owner;
    object["incarnation"] = record.incarnation;
    object["term"] = record.term;
    object["nonce"] = record.nonce;
    object["applied"] = record.applied;
    if (record.applied.empty()) object["applied"] = json::object();
    object.erase("snapshot");
    if (record.snapshot)
        object["snapshot"] = {{"reference", record.snapshot->reference},
                              {"generation", record.snapshot->generation},
                              {"state", record.snapshot->state}};
    return finish(object);
}

Result<core::HoldRecord> decode_hold(BytesView bytes) {
    constexpr std::string_view kWhat = "hold record";
    HF_ASSIGN(Taker taker, open(kWhat, bytes));
    core::HoldRecord out;
    std::uint64_t version = 0;
    std::string state;
    taker.number("version", version);
    if (taker.error().empty() && (version == 0 || version > kVersion))
        return corrupt(kWhat,
                       "version " + std::to_string(version) + " is not one this build reads (1)");
    out.version = static_cast<std::uint32_t>(version);
    taker.number("epoch", out.epoch);
    taker.text("state", state);
    taker.text("owner", out.owner);
    taker.number("incarnation", out.incarnation);
    taker.number("term", out.term);
    taker.text("nonce", out.nonce);
    take_applied(taker, out.applied);
    take_snapshot(taker, out.snapshot);
    if (!taker.error().empty()) return corrupt(kWhat, taker.error());
    if (state != "held" && state != "free")
        return corrupt(kWhat, "member 'state' is neither 'free' nor 'held'");
    if (!out.nonce.empty() && (out.nonce.size() != kNonceDigits || !lower_hex(out.nonce)))
        return corrupt(kWhat, "member 'nonce' is not 32 hex digits");
    out.state = state == "held" ? core::HoldState::Held : core::HoldState::Free;
    out.unknown = taker.rest();
    return out;
}

Bytes encode_store(const core::StoreRecord& record) {
    json object = begin(record.unknown);
    object["id"] = record.id;
    object["mode"] = record.mode;
    return finish(object);
}

Result<core::StoreRecord> decode_store(BytesView bytes) {
    constexpr std::string_view kWhat = "store record";
    HF_ASSIGN(Taker taker, open(kWhat, bytes));
    core::StoreRecord out;
    out.mode.clear();
    taker.text("id", out.id);
    taker.text("mode", out.mode);
    if (!taker.error().empty()) return corrupt(kWhat, taker.error());
    if (out.id.size() != kNonceDigits || !lower_hex(out.id))
        return corrupt(kWhat, "member 'id' is not 32 hex digits");
    if (out.mode != "exclusive" && out.mode != "shared")
        return corrupt(kWhat, "member 'mode' is neither 'exclusive' nor 'shared'");
    out.unknown = taker.rest();
    return out;
}

}  // namespace hf::records
