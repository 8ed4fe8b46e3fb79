// Reads the compiled schema (envelope.bfbs) and writes message_traits.hpp: one constexpr row per message, by the union's
// number, from the custom attributes that control.fbs documents. A schema that leaves a death undecided, names an answer
// that does not exist or spells an attribute wrongly ends the build here with one sentence that names the table.
// Runs at build time only; nothing of it is in the product.
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <flatbuffers/reflection_generated.h>

namespace {

// The same numbers as hf::kRecordBytesMax and hf::kVerifyTablesDefault; message_traits.hpp asserts that they agree.
constexpr std::uint32_t kRecordBytesMax = 64 * 1024;
constexpr std::uint32_t kReplyBytesDefault = 512;
constexpr std::uint32_t kTablesDefault = 64;
constexpr std::uint32_t kTablesMax = 4096;  // four times the longest list a record has room for
constexpr std::string_view kNamespace = "hf.abi.";

struct Row {
    std::string name;
    std::string reply;   // short name, empty for what is not a request
    std::string replay;  // as spelt, empty when absent
    std::string from;
    std::uint32_t reply_max = 0;
    std::uint32_t max_tables = kTablesDefault;
    unsigned kinds = 0;  // bit per Kind value
};

using Attributes = std::map<std::string, std::string>;

[[noreturn]] void refuse(const std::string& table, const std::string& why) {
    throw std::runtime_error("schema: table " + table + " " + why);
}

std::string short_name(const std::string& full) {
    return full.starts_with(kNamespace) ? full.substr(kNamespace.size()) : full;
}

Attributes attributes_of(const reflection::Object& object) {
    Attributes out;
    if (object.attributes() == nullptr) return out;
    for (const reflection::KeyValue* pair : *object.attributes())
        out[pair->key()->str()] = pair->value() != nullptr ? pair->value()->str() : "";
    return out;
}

std::uint32_t number(const std::string& table,
                     const std::string& key,
                     const std::string& text,
                     std::uint32_t low,
                     std::uint32_t high) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
        refuse(table,
               "has " + key + ":\"" + text + "\", which is not a number from " +
                   std::to_string(low) + " to " + std::to_string(high));
    return value;
}

unsigned kinds_of(const std::string& table,
                  const std::string& text,
                  const std::map<std::string, unsigned>& known) {
    unsigned bits = 0;
    std::size_t at = 0;
    while (at <= text.size()) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        const auto found = known.find(text.substr(at, comma - at));
        if (found == known.end())
            refuse(table,
                   "has kinds:\"" + text + "\", where \"" + text.substr(at, comma - at) +
                       "\" is no kind of plugin");
        bits |= 1U << found->second;
        at = comma + 1;
    }
    return bits;
}

Row row_of(const reflection::Object& object, const std::map<std::string, unsigned>& kinds) {
    Row row;
    row.name = short_name(object.name()->str());
    for (const auto& [key, value] : attributes_of(object)) {
        if (key == "request") {
            row.reply = value;
        } else if (key == "replay") {
            if (value != "resend" && value != "core" && value != "never")
                refuse(row.name, "has replay:\"" + value + "\"; it is resend, core or never");
            row.replay = value;
        } else if (key == "from") {
            if (value != "supervisor" && value != "plugin" && value != "both")
                refuse(row.name, "has from:\"" + value + "\"; it is supervisor, plugin or both");
            row.from = value;
        } else if (key == "reply_max") {
            row.reply_max = number(row.name, key, value, 64, kRecordBytesMax);
        } else if (key == "max_tables") {
            row.max_tables = number(row.name, key, value, 2, kTablesMax);
        } else if (key == "kinds") {
            row.kinds = kinds_of(row.name, value, kinds);
        } else {
            refuse(row.name, "has an attribute `" + key + "` that nothing reads");
        }
    }
    if (row.from.empty()) refuse(row.name, "does not say who sends it: add `from`");
    if (!row.reply.empty() && row.replay.empty())
        refuse(row.name,
               "is a request without `replay`: say what the death of the answering instance means");
    if (row.reply.empty() && !row.replay.empty())
        refuse(row.name, "is one-way and has `replay`, which only requests have");
    if (row.reply.empty() && row.reply_max != 0)
        refuse(row.name, "is no request and has `reply_max`");
    if (!row.reply.empty() && row.from == "both")
        refuse(row.name, "is a request from both sides; a request has one asker");
    if (!row.reply.empty() && row.reply_max == 0) row.reply_max = kReplyBytesDefault;
    if (row.kinds == 0)
        for (const auto& [name, bit] : kinds) row.kinds |= 1U << bit;
    return row;
}

// Rules that need more than one row.
void check_pairs(const std::vector<Row>& rows) {
    std::map<std::string, const Row*> by_name;
    for (const Row& row : rows) by_name[row.name] = &row;
    for (const Row& row : rows) {
        if (row.reply.empty()) continue;
        const auto answer = by_name.find(row.reply);
        if (answer == by_name.end())
            refuse(row.name,
                   "is answered by " + row.reply + ", which is no member of the union Body");
        if (!answer->second->reply.empty())
            refuse(row.name, "is answered by " + row.reply + ", which is itself a request");
        if (answer->second->from == row.from)
            refuse(row.name, "is answered by " + row.reply + ", which the asker itself sends");
        if ((answer->second->kinds & row.kinds) != row.kinds)
            refuse(row.name,
                   "is answered by " + row.reply + ", which is not allowed on all of its kinds");
    }
}

std::string upper(std::string word) {
    if (!word.empty()) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    return word;
}

void write(std::ostream& out, const std::vector<Row>& rows) {
    std::set<std::string> answers;
    for (const Row& row : rows) answers.insert(row.reply);
    out << "// Written by abi/tools/traits_gen from the schema's attributes. Do not edit.\n"
           "#pragma once\n\n#include <array>\n#include <cstddef>\n#include <cstdint>\n\n"
           "#include \"abi/base/limits.hpp\"\n#include \"envelope_generated.h\"\n\n"
           "namespace hf::abi {\n\n"
           "enum class Replay : std::uint8_t { None, Resend, Core, Never };\n"
           "enum class From : std::uint8_t { Nobody, Supervisor, Plugin, Both };\n\n"
           "// What the schema says about one message. `kinds` has the bit 1 << Kind for each link "
           "that may carry it.\n"
           "struct MessageTraits {\n"
           "    const char* name = \"\";\n"
           "    bool request = false;            // expects exactly one answer, of type `reply`\n"
           "    bool answer = false;             // is the answer of some request\n"
           "    Body reply = Body::NONE;\n"
           "    Replay replay = Replay::None;\n"
           "    std::uint32_t reply_max = 0;     // bytes the answer may take in the ring, header "
           "included\n"
           "    std::uint32_t max_tables = 0;\n"
           "    From from = From::Nobody;\n"
           "    std::uint8_t kinds = 0;\n"
           "};\n\n"
           "inline constexpr std::size_t kMessageCount = "
        << rows.size() + 1
        << ";\n"
           "inline constexpr std::array<MessageTraits, kMessageCount> kMessageTraits{{\n    {},\n";
    for (const Row& row : rows) {
        out << "    {\"" << row.name << "\", " << (row.reply.empty() ? "false" : "true") << ", "
            << (answers.contains(row.name) ? "true" : "false")
            << ", Body::" << (row.reply.empty() ? "NONE" : row.reply)
            << ", Replay::" << (row.replay.empty() ? "None" : upper(row.replay)) << ", "
            << row.reply_max << ", " << row.max_tables << ", From::" << upper(row.from) << ", "
            << row.kinds << "},\n";
    }
    out << "}};\n\n"
           "// The row of a type; of an unknown number, a row that nobody may send.\n"
           "[[nodiscard]] constexpr const MessageTraits& traits_of(Body type) {\n"
           "    const auto index = static_cast<std::size_t>(type);\n"
           "    return kMessageTraits[index < kMessageCount ? index : 0];\n"
           "}\n\n"
           "static_assert(kMessageCount == static_cast<std::size_t>(Body::MAX) + 1);\n"
           "static_assert(kRecordBytesMax == "
        << kRecordBytesMax << " && kVerifyTablesDefault == " << kTablesDefault
        << ");\n\n}  // namespace hf::abi\n";
}

std::vector<Row> rows_of(const reflection::Schema& schema) {
    std::map<std::string, unsigned> kinds;
    const reflection::Enum* kind = schema.enums()->LookupByKey("hf.abi.Kind");
    const reflection::Enum* body = schema.enums()->LookupByKey("hf.abi.Body");
    if (kind == nullptr || body == nullptr)
        throw std::runtime_error("schema: it has no enum hf.abi.Kind or no union hf.abi.Body");
    for (const reflection::EnumVal* value : *kind->values()) {
        std::string name = value->name()->str();
        name[0] = static_cast<char>(name[0] - 'A' + 'a');
        if (value->value() != 0) kinds[name] = static_cast<unsigned>(value->value());
    }
    std::vector<Row> rows;
    std::set<std::string> members;
    for (const reflection::EnumVal* value : *body->values()) {
        if (value->value() == 0) continue;
        const reflection::Object* object = schema.objects()->Get(
            static_cast<flatbuffers::uoffset_t>(value->union_type()->index()));
        rows.push_back(row_of(*object, kinds));
        if (static_cast<std::size_t>(value->value()) != rows.size())
            refuse(rows.back().name, "has a number in the union Body that leaves a gap");
        members.insert(object->name()->str());
    }
    for (const reflection::Object* object : *schema.objects())
        if (!members.contains(object->name()->str()) && !attributes_of(*object).empty() &&
            attributes_of(*object).contains("request"))
            refuse(short_name(object->name()->str()),
                   "is a request and no member of the union Body");
    check_pairs(rows);
    return rows;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 3) throw std::runtime_error("usage: traits_gen SCHEMA.bfbs OUTPUT.hpp");
        std::ifstream in(argv[1], std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(in),
                                std::istreambuf_iterator<char>()};
        // SAFETY: any object may be viewed as unsigned bytes.
        flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                       bytes.size());
        if (!reflection::VerifySchemaBuffer(verifier))
            throw std::runtime_error(std::string(argv[1]) + " is not a compiled schema");
        const std::vector<Row> rows = rows_of(*reflection::GetSchema(bytes.data()));
        std::ofstream out(argv[2], std::ios::trunc);
        write(out, rows);
        out.close();
        if (!out) throw std::runtime_error(std::string("cannot write ") + argv[2]);
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "traits_gen: " << error.what() << "\n";
        return 1;
    }
}
