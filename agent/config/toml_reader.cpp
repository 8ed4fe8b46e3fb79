#include "agent/config/toml_reader.hpp"

#include <toml++/toml.h>
#include <algorithm>
#include <sstream>
#include <utility>

namespace hf::config {

namespace {

[[nodiscard]] Place place_of(const toml::source_region& region) {
    return {static_cast<std::uint32_t>(region.begin.line),
            static_cast<std::uint32_t>(region.begin.column)};
}

template <class T>
[[nodiscard]] std::string printed(const T& value) {
    std::ostringstream out;
    out << value;
    return std::move(out).str();
}

[[nodiscard]] Item convert(const toml::node& node);

[[nodiscard]] Item convert_table(const toml::table& table) {
    Item out;
    for (const auto& [key, value] : table)
        out.members.push_back({std::string(key.str()), place_of(key.source()), convert(value)});
    // The library keeps keys sorted; people think in the order they wrote.
    std::stable_sort(out.members.begin(), out.members.end(), [](const Member& a, const Member& b) {
        return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
    });
    return out;
}

[[nodiscard]] Item convert(const toml::node& node) {
    Item out;
    switch (node.type()) {
        case toml::node_type::table:
            out = convert_table(*node.as_table());
            break;
        case toml::node_type::array:
            out.kind = Item::Kind::Array;
            for (const toml::node& one : *node.as_array()) out.items.push_back(convert(one));
            break;
        case toml::node_type::string:
            out.kind = Item::Kind::String;
            out.text = node.as_string()->get();
            break;
        case toml::node_type::integer:
            out.kind = Item::Kind::Integer;
            out.integer = node.as_integer()->get();
            out.text = std::to_string(out.integer);
            break;
        case toml::node_type::floating_point:
            out.kind = Item::Kind::Float;
            out.text = printed(*node.as_floating_point());
            break;
        case toml::node_type::boolean:
            out.kind = Item::Kind::Boolean;
            out.boolean = node.as_boolean()->get();
            out.text = out.boolean ? "true" : "false";
            break;
        case toml::node_type::date:
            out.kind = Item::Kind::DateTime;
            out.text = printed(*node.as_date());
            break;
        case toml::node_type::time:
            out.kind = Item::Kind::DateTime;
            out.text = printed(*node.as_time());
            break;
        default:
            out.kind = Item::Kind::DateTime;
            if (const auto* moment = node.as_date_time()) out.text = printed(*moment);
            break;
    }
    out.place = place_of(node.source());
    return out;
}

}  // namespace

const Item* Item::find(std::string_view key) const {
    for (const Member& member : members)
        if (member.key == key) return &member.value;
    return nullptr;
}

std::variant<Item, ParseFailure> read_toml(std::string_view text) {
    try {
        return convert_table(toml::parse(text));
    } catch (const toml::parse_error& error) {
        return ParseFailure{place_of(error.source()), std::string(error.description())};
    }
}

}  // namespace hf::config
