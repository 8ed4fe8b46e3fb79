// Prints every key of a bucket with a prefix and the size of its object, a line each: what a node left in its store.
//
//   bucket-list DIRECTORY PREFIX
#include <cstdio>
#include <string>

#include "plugins/storage-local/bucket.hpp"

int main(int argc, char** argv) {
    using hf::bucket::Bucket;
    if (argc != 3) {
        std::fputs("usage: bucket-list DIRECTORY PREFIX\n", stderr);
        return 2;
    }
    // Large enough for the stores of the tests.
    constexpr std::uint64_t kMapBytes = 256ULL << 20U;
    constexpr std::size_t kPage = 256;
    const auto bucket = Bucket::open({argv[1], kMapBytes});
    if (!bucket) {
        std::fprintf(stderr, "%s\n", bucket.error().message.c_str());
        return 1;
    }
    std::string after;
    for (bool more = true; more;) {
        const auto snapshot = (*bucket)->read();
        if (!snapshot) return 1;
        const auto listed = snapshot->list(argv[2], after, kPage, [&](const auto& object) {
            after = object.key;
            std::printf("%s %llu\n", after.c_str(), static_cast<unsigned long long>(object.size));
            return true;
        });
        if (!listed) return 1;
        more = *listed;
    }
    return 0;
}
