// One value at a time: from what stands in the file, the environment or the rule's default to a checked Value, with a
// complaint that says what is allowed. Private to this room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "agent/config/config.hpp"
#include "agent/config/rules.hpp"
#include "agent/config/toml_reader.hpp"

namespace hf::config {

struct Value {
    std::int64_t number = 0;       // Count, Duration, Lease (ms), Size (bytes), Switch (0, 1)
    std::string text;              // as a person would write it; Path: absolute
    std::vector<Endpoint> listen;  // Listen
    Origin origin;
    Place place;
    bool given = false;  // in the file or the environment
    bool good = false;   // passed its rule; false without `given`: there is no default

    // For Configure: base units.
    [[nodiscard]] std::string base_text(Type type) const;
};

// Gathers what is wrong and hands out the first 20 by place: more would hide the first.
class Complaints {
public:
    static constexpr std::size_t kMax = 20;
    // Kept at most; a file of 1 MiB can hold half a million mistakes.
    static constexpr std::size_t kKeptMax = 1000;
    explicit Complaints(std::string file) : file_(std::move(file)) {}
    void add(Place place, std::string message) { add_for(file_, place, std::move(message)); }
    void add_for(const std::string& source, Place place, std::string message);
    // In the file's order, those of the file as a whole first; what was cut is counted in one more.
    [[nodiscard]] std::vector<Problem> take();

private:
    std::string file_;
    std::vector<Problem> problems_;
    std::size_t told_ = 0;
};

class ValueReader {
public:
    // `base` is the directory relative paths count from.
    ValueReader(std::filesystem::path base, const Options& options, Complaints& complaints)
        : base_(std::move(base)), options_(&options), complaints_(&complaints) {}

    // The value of `rule` in table [table]; `member` is null when the file has none.
    [[nodiscard]] Value read(std::string_view table, const Rule& rule, const Member* member) const;

private:
    [[nodiscard]] Value from_item(const std::string& name,
                                  const Rule& rule,
                                  const Item& item) const;
    [[nodiscard]] std::string text_into(const Rule& rule,
                                        const std::string& text,
                                        Value& out,
                                        const std::filesystem::path& base) const;
    void from_environment(const Rule& rule, Value& out) const;

    std::filesystem::path base_;
    const Options* options_;
    Complaints* complaints_;
};

// "a whole number from 1 to 64"
[[nodiscard]] std::string allowed(const Rule& rule);
// "the string \"10\""
[[nodiscard]] std::string shown(const Item& item);

}  // namespace hf::config
