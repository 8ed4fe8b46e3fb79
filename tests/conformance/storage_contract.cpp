#include "tests/conformance/storage_contract.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <set>

#include "abi/base/limits.hpp"
#include "tests/conformance/storage_cases.hpp"

namespace hf::conformance {

void Report::expect(bool holds, const char* file, int line, const std::string& text) {
    if (!holds) failures_.push_back(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

Id fresh_id() {
    static std::mt19937_64 random(std::random_device{}());
    return {random() | 1U, random()};
}

PutCall put_of(const std::string& key, const std::string& body) {
    return {key, body, fresh_id(), abi::Condition::None, {}};
}

PutCall create_of(const std::string& key, const std::string& body) {
    return {key, body, fresh_id(), abi::Condition::IfAbsent, {}};
}

PutCall replace_of(const std::string& key, const std::string& body, const std::string& etag) {
    return {key, body, fresh_id(), abi::Condition::IfMatch, etag};
}

std::vector<ListedObject> list_all(StorageUnderTest& store,
                                   Report& report,
                                   const std::string& prefix,
                                   std::uint32_t limit) {
    std::vector<ListedObject> all;
    std::string after;
    for (bool more = true; more;) {
        const ListedReply page = store.list({prefix, after, limit});
        EXPECT(page.outcome == abi::Outcome::Applied);
        EXPECT(limit == 0 || page.objects.size() <= limit);
        EXPECT(!page.more || !page.objects.empty());
        if (page.outcome != abi::Outcome::Applied || (page.more && page.objects.empty())) break;
        all.insert(all.end(), page.objects.begin(), page.objects.end());
        if (!all.empty()) after = all.back().key;
        more = page.more;
    }
    return all;
}

std::vector<std::string> list_keys(StorageUnderTest& store,
                                   Report& report,
                                   const std::string& prefix,
                                   std::uint32_t limit) {
    std::vector<std::string> keys;
    for (const ListedObject& object : list_all(store, report, prefix, limit))
        keys.push_back(object.key);
    return keys;
}

Verdict run_case(const ContractCase& one, StorageUnderTest& store, Report& report) {
    if (one.needs != nullptr && !(store.traits().*one.needs)) return Verdict::Skipped;
    const std::size_t before = report.failures().size();
    std::array<char, 64> tag{};
    std::snprintf(
        tag.data(), tag.size(), "/%016llx/", static_cast<unsigned long long>(fresh_id().lo));
    const std::string prefix = std::string("conformance/") + one.name + tag.data();
    one.run(store, report, prefix);
    for (const std::string& key : list_keys(store, report, prefix, 0)) {
        const DeletedReply gone = store.erase({key, abi::Condition::None, {}, {}});
        EXPECT(gone.outcome == abi::Outcome::Applied);
    }
    EXPECT(list_keys(store, report, prefix, 0).empty());
    return report.failures().size() == before ? Verdict::Held : Verdict::Failed;
}

std::span<const ContractCase> storage_contract() {
    static const std::vector<ContractCase> all = [] {
        std::vector<ContractCase> cases;
        for (const auto part : {write_cases(), list_cases(), death_cases()})
            cases.insert(cases.end(), part.begin(), part.end());
        return cases;
    }();
    return all;
}

}  // namespace hf::conformance
