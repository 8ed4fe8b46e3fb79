// A test's probe: puts objects one after the other and says so on stdout in unbuffered lines, so that a tracer sees each
// answer between the system calls that earned it. `bucket_prober DIRECTORY COUNT`. Not installed.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "plugins/storage-local/bucket.hpp"

namespace {

void say(const std::string& line) {
    (void)!::write(STDOUT_FILENO, line.data(), line.size());
}

const char* word(hf::bucket::Outcome outcome) {
    switch (outcome) {
        case hf::bucket::Outcome::Applied:
            return "applied";
        case hf::bucket::Outcome::Refused:
            return "refused";
        case hf::bucket::Outcome::Unknown:
            return "unknown";
        default:
            return "unexpected";
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    auto bucket = hf::bucket::Bucket::open({argv[1], 64U << 20U});
    if (!bucket) {
        say(bucket.error().message + "\n");
        return 1;
    }
    const int count = std::atoi(argv[2]);
    for (int i = 1; i <= count; ++i) {
        hf::bucket::Write write;
        write.key = "k" + std::to_string(i);
        write.body.assign(100, 'b');
        write.write_id = {1, static_cast<std::uint64_t>(i)};
        say("put " + std::to_string(i) + "\n");
        const hf::bucket::WriteResult result = (*bucket)->put(write);
        say("answer " + std::to_string(i) + " " + word(result.outcome) + "\n");
    }
    return (*bucket)->broken() ? 3 : 0;
}
