// What the fuzz targets share: bytes taken apart as numbers, a rule that ends the run when it is broken, and seeds. A target
// started with --seeds=DIR writes its seeds there and ends: the corpus is made by code and lies in no tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"

namespace hf::fuzz {

inline void must(bool rule) {
    if (!rule) std::abort();
}

// Reads from the front; beyond the end everything is zero. Plain data: it may live in a frame that is left by a jump.
class Feed {
public:
    Feed(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
    explicit Feed(BytesView bytes) : Feed(bytes.data(), bytes.size()) {}
    [[nodiscard]] bool empty() const { return left_ == 0; }
    std::uint64_t number(std::size_t bytes) {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < bytes && left_ > 0; ++i, ++at_, --left_)
            value |= std::uint64_t{*at_} << (8 * i);
        return value;
    }
    std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
    std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
    std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
    std::uint64_t u64() { return number(8); }
    // At most so many bytes.
    BytesView bytes(std::size_t most) {
        const BytesView out(at_, most < left_ ? most : left_);
        at_ += out.size();
        left_ -= out.size();
        return out;
    }
    BytesView rest() { return bytes(left_); }

private:
    const std::uint8_t* at_;
    std::size_t left_;
};

// Writes what Feed reads.
class Seed {
public:
    Seed& number(std::uint64_t value, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i)
            out_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
        return *this;
    }
    Seed& u8(std::uint64_t value) { return number(value, 1); }
    Seed& u16(std::uint64_t value) { return number(value, 2); }
    Seed& u32(std::uint64_t value) { return number(value, 4); }
    Seed& u64(std::uint64_t value) { return number(value, 8); }
    Seed& raw(BytesView bytes) {
        out_.insert(out_.end(), bytes.begin(), bytes.end());
        return *this;
    }
    [[nodiscard]] const Bytes& bytes() const { return out_; }

private:
    Bytes out_;
};

// For LLVMFuzzerInitialize. Does not return when seeds are asked for.
inline void seeds_if_asked(int argc, char** argv, const std::function<std::vector<Bytes>()>& make) {
    constexpr std::string_view kOption = "--seeds=";
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (!word.starts_with(kOption)) continue;
        std::size_t number = 0;
        for (const Bytes& seed : make()) {
            const std::string path =
                std::string(word.substr(kOption.size())) + "/seed-" + std::to_string(number++);
            std::ofstream(path, std::ios::binary)
                .write(as_text(seed).data(), static_cast<std::streamsize>(seed.size()));
        }
        std::exit(0);
    }
}

}  // namespace hf::fuzz
