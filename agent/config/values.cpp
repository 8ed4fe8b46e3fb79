#include "agent/config/values.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "agent/config/endpoints.hpp"
#include "agent/config/text_rules.hpp"

namespace hf::config {

namespace {

// Twelve times the longest part of a key would still fit; longer ones are accidents.
constexpr std::size_t kNameBytesMax = 64;
// An endpoint is a host of at most 253 bytes; buckets, regions and prefixes are shorter.
constexpr std::size_t kTextBytesMax = 270;
// PATH_MAX less what the daemon appends.
constexpr std::size_t kPathBytesMax = 3900;

[[nodiscard]] bool control_byte(char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

[[nodiscard]] bool name_byte(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

[[nodiscard]] bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= kNameBytesMax &&
           std::all_of(text.begin(), text.end(), name_byte);
}

[[nodiscard]] bool is_node_id(std::string_view text) {
    return !text.empty() && text.size() <= kNameBytesMax && text[0] != '.' &&
           std::all_of(text.begin(), text.end(), [](char c) { return name_byte(c) || c == '.'; });
}

[[nodiscard]] std::string quoted_list(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "\"" : ", \"") + word + "\"";
    return out;
}

[[nodiscard]] std::string fault_text(const Measure& measure, std::string_view units) {
    switch (measure.fault) {
        case Measure::Fault::Empty:
            return "is empty";
        case Measure::Fault::NoUnit:
            return "has no unit";
        case Measure::Fault::Unit: {
            std::string out = "has the unknown unit '" + printable(measure.unit) + "'";
            std::vector<std::string> known;
            for (std::string_view rest = units; !rest.empty();) {
                const std::size_t comma = rest.find(", ");
                known.emplace_back(rest.substr(0, comma));
                rest =
                    comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
            }
            if (const auto near = nearest(measure.unit, known))
                out += " (did you mean '" + *near + "'?)";
            return out;
        }
        case Measure::Fault::Fraction:
            return "is not a whole number (use a smaller unit)";
        case Measure::Fault::Negative:
            return "is negative";
        case Measure::Fault::TooLarge:
            return "is too large";
        default:
            return "is not a number with a unit";
    }
}

// Sets the number of a measure; answers what is wrong with it.
[[nodiscard]] std::string measure_into(const Rule& rule, const std::string& text, Value& out) {
    const bool duration = rule.type != Type::Size;
    const Measure measure = duration ? parse_duration(text) : parse_size(text);
    if (measure.fault != Measure::Fault::None)
        return fault_text(measure, duration ? kDurationUnits : kSizeUnits);
    if (measure.value < rule.least || measure.value > rule.most) return "is out of range";
    out.number = measure.value;
    out.text = duration ? format_duration(measure.value) : format_size(measure.value);
    return {};
}

[[nodiscard]] std::string word_into(const Rule& rule, const std::string& text, Value& out) {
    const auto words = split_words(rule.words);
    if (std::find(words.begin(), words.end(), text) != words.end()) {
        out.text = text;
        return {};
    }
    const auto near = nearest(text, words);
    return near ? "is unknown (did you mean \"" + *near + "\"?)" : "is unknown";
}

}  // namespace

std::string Value::base_text(Type type) const {
    return type == Type::Count || type == Type::Duration || type == Type::Size
               ? std::to_string(number)
               : text;
}

void Complaints::add_for(const std::string& source, Place place, std::string message) {
    ++told_;
    if (problems_.size() < kKeptMax)
        problems_.push_back({source, place.line, place.column, std::move(message)});
}

std::vector<Problem> Complaints::take() {
    std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
        return std::tie(a.line, a.column) < std::tie(b.line, b.column);
    });
    if (told_ > kMax) {
        if (problems_.size() > kMax) problems_.resize(kMax);
        const std::size_t more = told_ - problems_.size();
        problems_.push_back({file_,
                             0,
                             0,
                             "and at least " + std::to_string(more) +
                                 (more == 1 ? " more mistake" : " more mistakes")});
    }
    return std::move(problems_);
}

std::string allowed(const Rule& rule) {
    const auto range = [&](auto format) {
        if (rule.least == rule.most) return format(rule.least);
        return "from " + format(rule.least) + " to " + format(rule.most);
    };
    switch (rule.type) {
        case Type::Name:
            return "a name of 1 to 64 characters out of A-Z a-z 0-9 _ -";
        case Type::NodeId:
            return "a name of 1 to 64 characters out of A-Z a-z 0-9 _ - and, not in front, '.'";
        case Type::Path:
            return "a path in quotes";
        case Type::Label:
            return "a name in quotes, at most 64 characters";
        case Type::Word: {
            const auto words = split_words(rule.words);
            return (words.size() == 1 ? "" : "one of ") + quoted_list(words);
        }
        case Type::Count: {
            const std::string text = range([](std::int64_t n) { return std::to_string(n); });
            return (rule.least == rule.most ? "the whole number " : "a whole number ") + text;
        }
        case Type::Duration:
            return "a duration " + range(format_duration) + ", in quotes with a unit (" +
                   std::string(kDurationUnits) + ")";
        case Type::Size:
            return "a size " + range(format_size) + ", in quotes with a unit (" +
                   std::string(kSizeUnits) + ")";
        case Type::Switch:
            return "true or false, without quotes";
        case Type::Text:
            return "text in quotes without blanks, at most 270 characters";
        case Type::Listen:
            return "an address such as \"127.0.0.1:8080\", or a list of at most 8";
        case Type::Lease:
            return "\"none\" or a duration " + range(format_duration) +
                   ", in quotes with a unit (" + std::string(kDurationUnits) + ")";
        case Type::Address:
            return "an address that other nodes reach, such as \"10.0.0.7:8080\" or "
                   "\"node-1.example:8080\"";
    }
    return {};
}

std::string shown(const Item& item) {
    switch (item.kind) {
        case Item::Kind::Table:
            return "a table";
        case Item::Kind::Array:
            return "a list";
        case Item::Kind::String:
            return "the string \"" + printable(item.text) + "\"";
        case Item::Kind::DateTime:
            return "the date or time " + item.text;
        case Item::Kind::Boolean:
            return item.text;
        default:
            return "the number " + item.text;
    }
}

// Judges text by a rule that takes text; answers what is wrong with it ("has no unit").
std::string ValueReader::text_into(const Rule& rule,
                                   const std::string& text,
                                   Value& out,
                                   const std::filesystem::path& base) const {
    switch (rule.type) {
        case Type::Duration:
        case Type::Size:
            return measure_into(rule, text, out);
        case Type::Word:
            return word_into(rule, text, out);
        case Type::Name:
            if (!is_name(text)) return "is not a name";
            break;
        case Type::NodeId:
            if (!is_node_id(text)) return "is not a node id";
            break;
        case Type::Label:
            if (text.empty() || text.size() > kNameBytesMax ||
                std::any_of(text.begin(), text.end(), control_byte))
                return "is not a name";
            break;
        case Type::Text:
            if (text.size() > kTextBytesMax || std::any_of(text.begin(), text.end(), [](char c) {
                    return c == ' ' || control_byte(c);
                }))
                return "is no such text";
            break;
        case Type::Path:
            if (text.empty()) return "is empty";
            if (text.size() > kPathBytesMax || std::any_of(text.begin(), text.end(), control_byte))
                return "is not a path";
            out.text = (base / text).lexically_normal().string();
            if (out.text.size() > 1 && out.text.back() == '/') out.text.pop_back();
            return {};
        case Type::Listen:
            return listen_into(text, out.listen, out.text);
        case Type::Lease:
            if (text != "none") return measure_into(rule, text, out);
            break;
        case Type::Address:
            return address_into(text, out.text);
        default:
            return "is the wrong type";
    }
    out.text = text;
    return {};
}

Value ValueReader::from_item(const std::string& name, const Rule& rule, const Item& item) const {
    Value out;
    out.place = item.place;
    out.given = true;
    out.origin = {Origin::Kind::File, item.place.line, {}};
    const auto refuse = [&](const std::string& wrong) {
        complaints_->add(
            item.place,
            "'" + name + "' must be " + allowed(rule) + "; " + shown(item) + " " + wrong);
        return out;
    };
    if (rule.type == Type::Count) {
        if (item.kind != Item::Kind::Integer) return refuse("is not a whole number without quotes");
        if (item.integer < rule.least || item.integer > rule.most) return refuse("is out of range");
        out.number = item.integer;
        out.text = item.text;
    } else if (rule.type == Type::Switch) {
        if (item.kind != Item::Kind::Boolean) return refuse("is neither");
        out.number = item.boolean ? 1 : 0;
        out.text = item.text;
    } else if (rule.type == Type::Listen && item.kind == Item::Kind::Array) {
        if (item.items.empty()) return refuse("is empty");
        for (const Item& one : item.items) {
            if (one.kind != Item::Kind::String)
                return refuse("holds something that is not a string");
            const std::string wrong = listen_into(one.text, out.listen, out.text);
            if (!wrong.empty()) {
                complaints_->add(
                    one.place,
                    "'" + name + "' must be " + allowed(rule) + "; " + shown(one) + " " + wrong);
                return out;
            }
        }
    } else {
        if (item.kind != Item::Kind::String) return refuse("is not text in quotes");
        const std::string wrong = text_into(rule, item.text, out, base_);
        if (!wrong.empty()) return refuse(wrong);
    }
    out.good = true;
    return out;
}

void ValueReader::from_environment(const Rule& rule, Value& out) const {
    const std::string variable(rule.variable);
    const auto text = options_->environment(variable.c_str());
    if (!text || text->empty()) return;
    Value mine;
    mine.given = true;
    mine.origin = {Origin::Kind::Environment, 0, variable};
    // A path in the environment was typed in a shell: it counts from where the shell was.
    std::error_code failed;
    const std::string wrong = text_into(rule, *text, mine, std::filesystem::current_path(failed));
    mine.good = wrong.empty();
    if (!mine.good)
        complaints_->add_for(
            "environment " + variable,
            {},
            "must be " + allowed(rule) + "; \"" + printable(*text) + "\" " + wrong);
    out = std::move(mine);
}

Value ValueReader::read(std::string_view table, const Rule& rule, const Member* member) const {
    const std::string name = std::string(table) + '.' + std::string(rule.key);
    Value out;
    if (member != nullptr) {
        out = from_item(name, rule, member->value);
    } else if (!rule.fallback.empty()) {
        const std::string text(rule.fallback);
        if (rule.type == Type::Count || rule.type == Type::Switch) {
            out.number = rule.type == Type::Switch ? (text == "true" ? 1 : 0) : std::stoll(text);
            out.text = text;
            out.good = true;
        } else {
            out.good = text_into(rule, text, out, base_).empty();
        }
    }
    if (!rule.variable.empty()) from_environment(rule, out);
    if (!rule.stand_in.empty() && member == nullptr) {
        Rule of_environment = rule;
        of_environment.variable = rule.stand_in;
        from_environment(of_environment, out);
    }
    return out;
}

}  // namespace hf::config
