#include "plugins/gateway-http/fields.hpp"

#include <algorithm>

namespace hf::gateway {

namespace {

std::string_view trimmed(std::string_view word) {
    while (!word.empty() && (word.front() == ' ' || word.front() == '\t')) word.remove_prefix(1);
    while (!word.empty() && (word.back() == ' ' || word.back() == '\t')) word.remove_suffix(1);
    return word;
}

// True when `wanted` says so of a word between commas.
template <class Wanted>
bool find_word(const Head& head, std::string_view name, Wanted wanted) {
    for (const Field& field : head.fields) {
        if (field.name != name) continue;
        for (std::string_view rest = field.value; !rest.empty();) {
            const std::size_t comma = std::min(rest.find(','), rest.size());
            const std::string_view word = trimmed(rest.substr(0, comma));
            if (!word.empty() && wanted(word)) return true;
            rest.remove_prefix(std::min(comma + 1, rest.size()));
        }
    }
    return false;
}

// Where the first of `ends` stands outside of a quoted string; the text's size: nowhere.
std::size_t find_unquoted(std::string_view text, std::string_view ends) {
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (quoted && text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && ends.find(text[i]) != std::string_view::npos)
            return i;
    }
    return text.size();
}

bool is_preference(std::string_view item, std::string_view lower_case) {
    const std::string_view pair = item.substr(0, find_unquoted(item, ";"));
    const std::size_t equals = pair.find('=');
    if (!equals_lower(trimmed(pair.substr(0, equals)), lower_case)) return false;
    if (equals == std::string_view::npos) return true;
    const std::string_view value = trimmed(pair.substr(equals + 1));
    // An empty value is the same as none.
    return value.empty() || value == "\"\"";
}

}  // namespace

bool equals_lower(std::string_view text, std::string_view lower_case) {
    return std::equal(
        text.begin(), text.end(), lower_case.begin(), lower_case.end(), [](char a, char b) {
            return (a >= 'A' && a <= 'Z' ? static_cast<char>(a | 0x20) : a) == b;
        });
}

std::vector<std::string_view> words_of(const Head& head, std::string_view name) {
    std::vector<std::string_view> words;
    (void)find_word(head, name, [&](std::string_view word) {
        words.push_back(word);
        return false;
    });
    return words;
}

bool has_word(const Head& head, std::string_view name, std::string_view lower_case) {
    return find_word(
        head, name, [&](std::string_view word) { return equals_lower(word, lower_case); });
}

bool has_preference(const Head& head, std::string_view lower_case) {
    for (const Field& field : head.fields) {
        if (field.name != "prefer") continue;
        for (std::string_view rest = field.value; !rest.empty();) {
            const std::size_t comma = find_unquoted(rest, ",");
            if (is_preference(rest.substr(0, comma), lower_case)) return true;
            rest.remove_prefix(std::min(comma + 1, rest.size()));
        }
    }
    return false;
}

}  // namespace hf::gateway
