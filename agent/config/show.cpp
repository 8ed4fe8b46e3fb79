// Effective values for people and for programs.
#include <nlohmann/json.hpp>

#include "agent/config/config.hpp"
#include "agent/config/text_rules.hpp"

namespace hf::config {

namespace {

[[nodiscard]] std::string origin_text(const Config& config, const Origin& origin) {
    switch (origin.kind) {
        case Origin::Kind::File:
            return config.file.filename().string() + ':' + std::to_string(origin.line);
        case Origin::Kind::Environment:
            return "environment " + origin.variable;
        case Origin::Kind::Default:
            break;
    }
    return "default";
}

[[nodiscard]] const char* origin_kind(Origin::Kind kind) {
    switch (kind) {
        case Origin::Kind::File:
            return "file";
        case Origin::Kind::Environment:
            return "environment";
        case Origin::Kind::Default:
            break;
    }
    return "default";
}

}  // namespace

std::string show_text(const Config& config) {
    std::string out = "# " + printable(config.file.string()) + '\n';
    std::string table;
    for (const Effective& one : config.effective) {
        if (one.table != table) {
            table = one.table;
            out += "\n[" + table + "]\n";
        }
        std::string line = one.key + " = " + printable(one.value);
        // One column for the origins; longer values push theirs aside.
        constexpr std::size_t kColumn = 44;
        if (line.size() < kColumn) line.resize(kColumn, ' ');
        out += line + "  # " + origin_text(config, one.origin) + '\n';
    }
    return out;
}

std::string show_json(const Config& config) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (const Effective& one : config.effective) {
        nlohmann::ordered_json value = {{"table", one.table},
                                        {"key", one.key},
                                        {"value", one.value},
                                        {"origin", origin_kind(one.origin.kind)}};
        if (one.origin.kind == Origin::Kind::File) value["line"] = one.origin.line;
        if (one.origin.kind == Origin::Kind::Environment) value["variable"] = one.origin.variable;
        values.push_back(std::move(value));
    }
    const nlohmann::ordered_json out = {{"file", config.file.string()},
                                        {"values", std::move(values)}};
    return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace hf::config
