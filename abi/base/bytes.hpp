// Bytes by value and by view, and the flat field format that events, headers and replies use:
// u32 little-endian length, then that many bytes; counts are a bare u32.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hf {

using Bytes = std::vector<std::uint8_t>;
using BytesView = std::span<const std::uint8_t>;

[[nodiscard]] inline BytesView as_bytes(std::string_view text) {
    // SAFETY: any object may be viewed as unsigned bytes.
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

[[nodiscard]] inline std::string_view as_text(BytesView bytes) {
    // SAFETY: as above, in the other direction; no terminator is assumed.
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Appends flat fields to a buffer.
class FlatWriter {
public:
    explicit FlatWriter(Bytes& out) : out_(out) {}
    void u32(std::uint32_t value) {
        for (int shift = 0; shift < 32; shift += 8)
            out_.push_back(static_cast<std::uint8_t>(value >> shift));
    }
    void u64(std::uint64_t value) {
        u32(static_cast<std::uint32_t>(value));
        u32(static_cast<std::uint32_t>(value >> 32U));
    }
    void raw(BytesView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
    void field(BytesView bytes) {
        u32(static_cast<std::uint32_t>(bytes.size()));
        out_.insert(out_.end(), bytes.begin(), bytes.end());
    }
    void field(std::string_view text) { field(as_bytes(text)); }

private:
    Bytes& out_;
};

// Reads flat fields; a read beyond the end answers false and leaves the output alone.
class FlatReader {
public:
    explicit FlatReader(BytesView bytes) : rest_(bytes) {}
    [[nodiscard]] bool u32(std::uint32_t& value) {
        if (rest_.size() < 4) return false;
        value = 0;
        for (unsigned i = 0; i < 4; ++i) value |= std::uint32_t{rest_[i]} << (8 * i);
        rest_ = rest_.subspan(4);
        return true;
    }
    [[nodiscard]] bool u64(std::uint64_t& value) {
        if (rest_.size() < 8) return false;
        value = 0;
        for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{rest_[i]} << (8 * i);
        rest_ = rest_.subspan(8);
        return true;
    }
    [[nodiscard]] bool field(BytesView& out) {
        std::uint32_t size = 0;
        const BytesView before = rest_;
        if (!u32(size) || size > rest_.size()) {
            rest_ = before;
            return false;
        }
        out = rest_.first(size);
        rest_ = rest_.subspan(size);
        return true;
    }
    [[nodiscard]] bool field(std::string_view& out) {
        BytesView bytes;
        if (!field(bytes)) return false;
        out = as_text(bytes);
        return true;
    }
    [[nodiscard]] bool done() const { return rest_.empty(); }
    // What has not been read.
    [[nodiscard]] BytesView rest() const { return rest_; }

private:
    BytesView rest_;
};

}  // namespace hf
