// Listing: order, pages, prefixes, odd names.
#include <algorithm>
#include <map>

#include "tests/conformance/storage_cases.hpp"

namespace hf::conformance {
namespace {

using abi::Outcome;

void store_all(StorageUnderTest& store, Report& report, const std::vector<std::string>& keys) {
    std::vector<PutCall> calls;
    for (const std::string& key : keys)
        calls.push_back(create_of(key, "body of " + std::to_string(key.size())));
    for (const StoredReply& reply : store.put_all(calls)) EXPECT(reply.outcome == Outcome::Applied);
}

void pages_of_every_size(StorageUnderTest& store, Report& report, const std::string& prefix) {
    std::vector<std::string> keys;
    for (int i = 0; i < 300; ++i) keys.push_back(prefix + "k" + std::to_string(i));
    store_all(store, report, keys);
    std::sort(keys.begin(), keys.end());
    for (const std::uint32_t limit : {0U, 1U, 2U, 7U, 255U, 256U})
        EXPECT(list_keys(store, report, prefix, limit) == keys);
    const ListedReply whole = store.list({prefix, "", 0});
    EXPECT(whole.objects.size() <= 256);
    EXPECT(whole.more);
    const ListedReply last = store.list({prefix, keys[297], 2});
    EXPECT(last.objects.size() == 2);
    EXPECT(!last.more);
    const ListedReply before_last = store.list({prefix, keys[297], 1});
    EXPECT(before_last.objects.size() == 1);
    EXPECT(before_last.more);
    EXPECT(store.list({prefix, "", 257}).outcome == Outcome::Refused);
}

void entries_tell_what_get_tells(StorageUnderTest& store,
                                 Report& report,
                                 const std::string& prefix) {
    const StoredReply stored = store.put(create_of(prefix + "k", "twelve bytes"));
    const ListedReply listed = store.list({prefix, "", 0});
    EXPECT(listed.objects.size() == 1);
    if (listed.objects.empty()) return;
    const ListedObject& object = listed.objects.front();
    EXPECT(object.size == 12);
    EXPECT(object.etag == stored.etag);
    // Both are the store's clock; stores that round up may be a second ahead.
    EXPECT(object.last_modified_ms <= listed.store_time_ms + 1000);
    EXPECT(object.last_modified_ms > listed.store_time_ms - 60'000);
    EXPECT(!listed.more);
}

void an_empty_listing(StorageUnderTest& store, Report& report, const std::string& prefix) {
    const ListedReply listed = store.list({prefix + "nothing", "", 0});
    EXPECT(listed.outcome == Outcome::Applied);
    EXPECT(listed.objects.empty());
    EXPECT(!listed.more);
    EXPECT(listed.store_time_ms > 1'500'000'000'000);
}

void after_need_not_exist(StorageUnderTest& store, Report& report, const std::string& prefix) {
    store_all(store, report, {prefix + "b", prefix + "d", prefix + "f"});
    const auto first = [&](const std::string& after) {
        const ListedReply listed = store.list({prefix, after, 1});
        return listed.objects.empty() ? std::string() : listed.objects.front().key;
    };
    EXPECT(first(prefix + "a") == prefix + "b");
    EXPECT(first(prefix + "b") == prefix + "d");
    EXPECT(first(prefix + "bb") == prefix + "d");
    EXPECT(first(prefix + "c") == prefix + "d");
    EXPECT(first(prefix + "f").empty());
    EXPECT(first("zzz").empty());
    EXPECT(first("a") == prefix + "b");
}

void prefixes_are_bytes_not_folders(StorageUnderTest& store,
                                    Report& report,
                                    const std::string& prefix) {
    store_all(store,
              report,
              {prefix + "a", prefix + "a/b", prefix + "a/b/c", prefix + "ab", prefix + "b"});
    EXPECT(list_keys(store, report, prefix + "a", 2).size() == 4);
    EXPECT(list_keys(store, report, prefix + "a/", 2).size() == 2);
    EXPECT(list_keys(store, report, prefix + "a/b", 1).size() == 2);
    EXPECT(list_keys(store, report, prefix + "c", 1).empty());
}

void long_common_prefixes(StorageUnderTest& store, Report& report, const std::string& prefix) {
    std::vector<std::string> keys;
    for (const char unit : {'a', 'b'}) {
        const std::string stem = prefix + std::string(600 - prefix.size(), unit);
        keys.push_back(stem);
        for (int i = 0; i < 25; ++i) keys.push_back(stem + std::to_string(i));
        keys.push_back(stem + std::string(1024 - stem.size(), 'z'));
        keys.push_back(stem.substr(0, 480));
        keys.push_back(stem.substr(0, 511));
    }
    store_all(store, report, keys);
    std::sort(keys.begin(), keys.end());
    for (const std::uint32_t limit : {1U, 2U, 0U}) {
        EXPECT(list_keys(store, report, prefix, limit) == keys);
        std::vector<std::string> half(keys.begin() + static_cast<std::ptrdiff_t>(keys.size() / 2),
                                      keys.end());
        EXPECT(list_keys(store, report, prefix + "b", limit) == half);
    }
}

void a_page_of_long_keys_fits_a_reply(StorageUnderTest& store,
                                      Report& report,
                                      const std::string& prefix) {
    std::vector<std::string> keys;
    for (int i = 0; i < 200; ++i) {
        const std::string name = std::to_string(1000 + i);
        keys.push_back(prefix + name + std::string(1024 - prefix.size() - name.size(), 'k'));
    }
    store_all(store, report, keys);
    const ListedReply first = store.list({prefix, "", 0});
    EXPECT(first.outcome == Outcome::Applied);
    EXPECT(first.objects.size() > 20);
    EXPECT(first.objects.size() < 200);
    EXPECT(first.more);
    EXPECT(list_keys(store, report, prefix, 0) == keys);
}

void odd_names_are_themselves(StorageUnderTest& store, Report& report, const std::string& prefix) {
    std::vector<std::string> keys;
    for (const char* name :
         {"a+b",     "a b",   "50%",   "%2F",      "%",         "a//b",
          "?x=1#y",  "@",     "!'()*", "\xC3\xBC", "u\xCC\x88", "\xF0\x9F\xA6\x91",
          "Upper",   "upper", "&amp;", "<tag>",    "a;b,c:d=e", "~",
          ".hidden", "x.",    "\"q\""})
        keys.push_back(prefix + name);
    std::sort(keys.begin(), keys.end());
    std::map<std::string, std::string> bodies;
    for (const std::string& key : keys) {
        bodies[key] = "I am " + key;
        EXPECT(store.put(create_of(key, bodies[key])).outcome == Outcome::Applied);
    }
    for (const std::string& key : keys) EXPECT(store.get(key).body == bodies[key]);
    for (const std::uint32_t limit : {1U, 2U, 0U})
        EXPECT(list_keys(store, report, prefix, limit) == keys);
}

void keys_of_any_bytes(StorageUnderTest& store, Report& report, const std::string& prefix) {
    std::vector<std::string> keys;
    for (int byte = 0; byte < 256; ++byte) keys.push_back(prefix + static_cast<char>(byte) + "x");
    for (const char byte : {'\0', '\xFF'}) {
        keys.push_back(prefix + std::string(480 - prefix.size(), byte));
        keys.push_back(prefix + std::string(700 - prefix.size(), byte));
    }
    store_all(store, report, keys);
    std::sort(keys.begin(), keys.end());
    for (const std::uint32_t limit : {1U, 2U, 0U})
        EXPECT(list_keys(store, report, prefix, limit) == keys);
    for (const std::string& key : keys) EXPECT(store.get(key).outcome == Outcome::Applied);
}

void listings_follow_writes(StorageUnderTest& store, Report& report, const std::string& prefix) {
    for (int i = 0; i < 30; ++i) {
        const std::string key = prefix + std::to_string(i);
        const StoredReply stored = store.put(create_of(key, "x"));
        const ListedReply listed = store.list({key, "", 1});
        EXPECT(listed.objects.size() == 1 && listed.objects.front().etag == stored.etag);
        store.erase({key, abi::Condition::None, {}, {}});
        EXPECT(store.list({key, "", 1}).objects.empty());
    }
}

constexpr ContractCase kCases[] = {
    {"pages_of_every_size", nullptr, pages_of_every_size},
    {"entries_tell_what_get_tells", nullptr, entries_tell_what_get_tells},
    {"an_empty_listing", nullptr, an_empty_listing},
    {"after_need_not_exist", nullptr, after_need_not_exist},
    {"prefixes_are_bytes_not_folders", nullptr, prefixes_are_bytes_not_folders},
    {"long_common_prefixes", nullptr, long_common_prefixes},
    {"a_page_of_long_keys_fits_a_reply", nullptr, a_page_of_long_keys_fits_a_reply},
    {"odd_names_are_themselves", nullptr, odd_names_are_themselves},
    {"keys_of_any_bytes", &Traits::any_key_bytes, keys_of_any_bytes},
    {"listings_follow_writes", nullptr, listings_follow_writes},
};

}  // namespace

std::span<const ContractCase> list_cases() {
    return kCases;
}

}  // namespace hf::conformance
