#include "agent/records/records.hpp"

#include "agent/records/encodings.hpp"

namespace hf::records {

namespace {

class Encodings final : public core::Codec {
public:
    [[nodiscard]] Bytes encode(const core::HoldRecord& record) const override {
        return encode_hold(record);
    }
    [[nodiscard]] Bytes encode(const core::LogEntry& entry) const override {
        return encode_entry(entry);
    }
    [[nodiscard]] Bytes encode(const core::StoreRecord& record) const override {
        return encode_store(record);
    }
    [[nodiscard]] Bytes encode(const core::NodeRecord& record) const override {
        return encode_node(record);
    }
    [[nodiscard]] Result<core::HoldRecord> decode_hold(BytesView bytes) const override {
        return records::decode_hold(bytes);
    }
    [[nodiscard]] Result<core::LogEntry> decode_entry(BytesView bytes) const override {
        return records::decode_entry(bytes);
    }
    [[nodiscard]] Result<core::StoreRecord> decode_store(BytesView bytes) const override {
        return records::decode_store(bytes);
    }
    [[nodiscard]] Result<core::NodeRecord> decode_node(BytesView bytes) const override {
        return records::decode_node(bytes);
    }
};

}  // namespace

const core::Codec& codec() {
    static const Encodings kEncodings;
    return kEncodings;
}

}  // namespace hf::records
