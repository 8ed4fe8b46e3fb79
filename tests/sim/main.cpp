// sim --seed S [--verbose] | sim --seeds N [--from S] [--single | --clusters]
// Runs the real core against simulated processes and a simulated bucket, once per seed. The first broken rule prints its
// seed and the tail of what happened, and ends with code 1. The same seed repeats the same run. About half of the seeds are
// runs of one node that has its bucket for itself, the others of up to four on one bucket; the last two flags pass over the
// other kind.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace {

using namespace hf::sim;

std::uint64_t g_seed = 0;
constexpr std::size_t kTailShown = 60;
constexpr std::uint64_t kRepeatEvery = 50;  // one seed in so many is run twice and compared

// A CHECK of the core aborts: name the seed before it is lost.
extern "C" void on_abort(int) {
    char text[64];
    const int size = std::snprintf(text,
                                   sizeof text,
                                   "the core aborted at seed %llu\n",
                                   static_cast<unsigned long long>(g_seed));
    if (size > 0) (void)!write(STDERR_FILENO, text, static_cast<std::size_t>(size));
    std::signal(SIGABRT, SIG_DFL);
    std::raise(SIGABRT);
}

int report(std::uint64_t seed, const std::string& what) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), what.c_str());
    World again(seed, true, false);
    std::string second = "nothing";
    try {
        again.run();
    } catch (const Failure& failure) {
        second = failure.what();
    }
    const auto& tail = again.tail();
    for (std::size_t i = tail.size() > kTailShown ? tail.size() - kTailShown : 0; i < tail.size();
         ++i)
        std::printf("  %s\n", tail[i].c_str());
    if (second != what) std::printf("  NOT REPEATABLE, the second run says: %s\n", second.c_str());
    std::printf("seed %llu: %s\n  repeat with: sim --seed %llu --verbose\n",
                static_cast<unsigned long long>(seed),
                what.c_str(),
                static_cast<unsigned long long>(seed));
    return 1;
}

int run_one(std::uint64_t seed, bool verbose, hf::core::Stats& totals, ClusterCounts& clusters) {
    g_seed = seed;
    World world(seed, verbose, verbose);
    try {
        world.run();
    } catch (const Failure& failure) {
        if (!verbose) return report(seed, failure.what());
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.what());
        return 1;
    }
    const hf::core::Stats& one = world.totals();
    totals.accepted += one.accepted;
    totals.commits += one.commits;
    totals.commit_unknown += one.commit_unknown;
    totals.undone += one.undone;
    totals.redelivered += one.redelivered;
    totals.bases += one.bases;
    totals.loads += one.loads;
    totals.fenced += one.fenced;
    totals.restarts += one.restarts;
    totals.stale_messages += one.stale_messages;
    totals.place_invalid += one.place_invalid;
    totals.place_late += one.place_late;
    totals.poisoned += one.poisoned;
    totals.deadline += one.deadline;
    totals.evicted += one.evicted;
    totals.stops += one.stops;
    totals.stops_failed += one.stops_failed;
    const ClusterCounts counts = world.counts();
    clusters.runs += counts.runs;
    clusters.asked += counts.asked;
    clusters.unknown += counts.unknown;
    clusters.taken += counts.taken;
    clusters.fenced += counts.fenced;
    clusters.lapsed += counts.lapsed;
    clusters.refused += counts.refused;
    if (seed % kRepeatEvery == 0) {
        World second(seed, false, false);
        second.run();
        if (second.fingerprint() != world.fingerprint()) {
            std::printf("seed %llu runs differently the second time\n",
                        static_cast<unsigned long long>(seed));
            return 1;
        }
    }
    return 0;
}

int usage() {
    std::fprintf(
        stderr,
        "usage: sim --seed S [--verbose] | sim --seeds N [--from S] [--single | --clusters]\n");
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t from = 1;
    std::uint64_t count = 0;
    bool verbose = false;
    bool single = true;
    bool clusters = true;
    for (int i = 1; i < argc; ++i) {
        const std::string flag = argv[i];
        if (flag == "--verbose") {
            verbose = true;
            continue;
        }
        if (flag == "--single" || flag == "--clusters") {
            (flag == "--single" ? clusters : single) = false;
            continue;
        }
        if (++i == argc) return usage();
        char* end = nullptr;
        const std::uint64_t value = std::strtoull(argv[i], &end, 10);
        if (end == argv[i] || *end != '\0') return usage();
        if (flag == "--seed") {
            from = value;
            count = 1;
        } else if (flag == "--seeds") {
            count = value;
        } else if (flag == "--from") {
            from = value;
        } else {
            return usage();
        }
    }
    if (count == 0 || (!single && !clusters)) return usage();
    std::signal(SIGABRT, on_abort);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    hf::core::Stats totals;
    ClusterCounts several;
    std::uint64_t runs = 0;
    for (std::uint64_t seed = from; seed < from + count; ++seed) {
        if (!(draw_scenario(seed).cluster() ? clusters : single)) continue;
        ++runs;
        if (const int code = run_one(seed, verbose, totals, several); code != 0) return code;
    }
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "%llu seeds: %llu events, %llu entries, %llu bases, %llu loads, %llu undone, %llu "
        "redelivered, %llu poisoned, %llu unknown, %llu fenced, %llu restarts, %llu stale, %llu "
        "late "
        "and %llu invalid places, %llu deadlines, %llu evicted, %llu stops and %llu failed ones\n",
        number(runs),
        number(totals.accepted),
        number(totals.commits),
        number(totals.bases),
        number(totals.loads),
        number(totals.undone),
        number(totals.redelivered),
        number(totals.poisoned),
        number(totals.commit_unknown),
        number(totals.fenced),
        number(totals.restarts),
        number(totals.stale_messages),
        number(totals.place_late),
        number(totals.place_invalid),
        number(totals.deadline),
        number(totals.evicted),
        number(totals.stops),
        number(totals.stops_failed));
    std::printf(
        "%llu of them clusters: %llu questions between nodes, %llu of them without an answer, %llu "
        "holds taken over, %llu leases ended by others, %llu lapsed, %llu starts refused\n",
        number(several.runs),
        number(several.asked),
        number(several.unknown),
        number(several.taken),
        number(several.fenced),
        number(several.lapsed),
        number(several.refused));
    return 0;
}
