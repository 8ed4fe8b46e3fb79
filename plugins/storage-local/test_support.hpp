// What the tests of this room share: a directory that goes away, and short ways to write a put.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "plugins/storage-local/bucket.hpp"

namespace hf::bucket::test {

// Most cases are about meaning, not about the disk: they live in memory, where a sync costs nothing. Those about syncs
// and kills live on the disk.
enum class Place { Memory, Disk };

class TempDir {
public:
    explicit TempDir(Place place = Place::Memory) {
        std::error_code ignored;
        std::string name = std::filesystem::temp_directory_path(ignored).string();
        if (place == Place::Memory && ::access("/dev/shm", W_OK) == 0) name = "/dev/shm";
        name += "/hf-bucket-XXXXXX";
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

inline constexpr std::uint64_t kSmallMap = 64U << 20U;

inline std::unique_ptr<Bucket> open(const std::string& directory,
                                    std::uint64_t map_bytes = kSmallMap) {
    auto bucket = Bucket::open({directory, map_bytes});
    REQUIRE_MESSAGE(bucket.ok(), (bucket.ok() ? "" : bucket.error().message));
    return std::move(bucket).value();
}

inline Write a_put(std::string_view key, std::string_view body, WriteId write_id = {}) {
    Write write;
    write.key = key;
    const BytesView bytes = as_bytes(body);
    write.body.assign(bytes.begin(), bytes.end());
    write.write_id = write_id;
    return write;
}

inline Write if_absent(Write write) {
    write.condition = Condition::IfAbsent;
    return write;
}

inline Write if_match(Write write, std::string etag) {
    write.condition = Condition::IfMatch;
    write.etag = std::move(etag);
    return write;
}

// The body, or "-" when there is no such object.
inline std::string body_of(Bucket& bucket, std::string_view key) {
    const auto snapshot = bucket.read();
    REQUIRE(snapshot.ok());
    const auto object = snapshot->get(key);
    if (!object) {
        CHECK(object.error().code == Code::NotFound);
        return "-";
    }
    return std::string(as_text(object->body));
}

// All keys with the prefix, fetched in pages of `page`.
inline std::vector<std::string> keys_of(Bucket& bucket,
                                        std::string_view prefix = {},
                                        std::size_t page = 256) {
    std::vector<std::string> keys;
    std::string after;
    for (bool more = true; more;) {
        const auto snapshot = bucket.read();
        REQUIRE(snapshot.ok());
        std::size_t taken = 0;
        const auto answer = snapshot->list(prefix, after, page, [&](const Listing& listing) {
            keys.emplace_back(listing.key);
            ++taken;
            return true;
        });
        REQUIRE(answer.ok());
        more = *answer;
        REQUIRE((!more || taken == page));
        if (!keys.empty()) after = keys.back();
    }
    return keys;
}

}  // namespace hf::bucket::test
