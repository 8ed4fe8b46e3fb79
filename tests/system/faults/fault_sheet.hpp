// What goes wrong and how often: words in the file `faults` of the store's directory, mapped by the storage process and
// written by the test while it runs. Also where the process leaves what it did; both outlive it.
//
// The words' places are known to tests/system/test_faults.py as well.
#pragma once

#include <cstdint>
#include <string>

#include "abi/base/result.hpp"
#include "plugins/storage-local/bucket.hpp"

namespace hf::faults {

struct FaultSheet {
    // Set by the test.
    std::uint64_t
        die_one_in;  // of the puts that are committed: ends before the answer leaves; 0: never
    std::uint64_t delay_ms;  // between a put's arrival and its answer, its commit in the middle
    std::uint64_t
        unknown_one_in;  // of the puts is answered unknown: stored, not stored, or stored later; 0: none
    std::uint64_t refuse;   // 1: every put is refused as by a full disk
    std::uint64_t no_sync;  // 1: read once, LMDB opens without syncs
    std::uint64_t seed;
    std::uint64_t unused[2];
    // Set by the process.
    std::uint64_t puts;
    std::uint64_t deaths;
    std::uint64_t unknown_stored;
    std::uint64_t unknown_lost;
    std::uint64_t unknown_late;
    std::uint64_t refused;
    std::uint64_t slot;  // of the next write id below
    std::uint64_t unused_too;
    // Puts that cost a life already: each costs one at most, so that all of them are answered in the end. More than a
    // node of the tests has open at once.
    static constexpr std::size_t kRemembered = 192;
    bucket::WriteId died_on[kRemembered];
};
static_assert(sizeof(FaultSheet) <= 4096);

// Maps the file for good; the test made it, one page long.
Result<FaultSheet*> map_fault_sheet(const std::string& store_directory);

}  // namespace hf::faults
