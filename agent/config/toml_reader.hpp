// TOML text as a plain tree with places. The only file of the room whose .cpp names toml++. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hf::config {

struct Place {
    std::uint32_t line = 0;
    std::uint32_t column = 0;
};

struct Member;

// One value. `text` is a string's content, and any other scalar as TOML prints it.
struct Item {
    enum class Kind : std::uint8_t { Table, Array, String, Integer, Float, Boolean, DateTime };
    Kind kind = Kind::Table;
    Place place;
    std::string text;
    std::int64_t integer = 0;
    bool boolean = false;
    std::vector<Member> members;  // Table: in the file's order
    std::vector<Item> items;      // Array

    [[nodiscard]] const Item* find(std::string_view key) const;
};

struct Member {
    std::string key;
    Place place;
    Item value;
};

struct ParseFailure {
    Place place;
    std::string message;
};

// The root table, or the first thing that is not TOML. `text` is at most 1 MiB with shallow keys (text_rules.hpp).
[[nodiscard]] std::variant<Item, ParseFailure> read_toml(std::string_view text);

}  // namespace hf::config
