// Figures of the runtime alone, no link: one JSON line each. Medians over rounds; run on a quiet machine.
//   open_us           open + fold of a stored state; activate_and_first_event_us adds mapping, faults and the event
//   event_us          POST of a warm counter: get, put, reply, encoded changes
//   event_spread_us   the same round-robin over all resident actors
//   resident_kib      memory per resident actor that has served, page tables included (VmRSS + VmPTE)
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "plugins/runtime-wasm/settings.hpp"
#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm {

namespace {

using testing::http_event;

constexpr int kRounds = 11;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void print(const char* name, double value, const char* unit, std::size_t actors) {
    std::printf("%s\n",
                nlohmann::json{{"bench", "wasm"},
                               {"figure", name},
                               {"value", value},
                               {"unit", unit},
                               {"actors", actors}}
                    .dump()
                    .c_str());
    std::fflush(stdout);
}

std::size_t status_kib(const std::string& field) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == field + ":") {
            std::size_t kib = 0;
            status >> kib;
            return kib;
        }
    return 0;
}

std::size_t resident_kib() {
    return status_kib("VmRSS") + status_kib("VmPTE");
}

int run(const std::string& wasm, std::size_t actors) {
    testing::TempDir cache;
    hf_host_v1 calls{};
    fill_engine_calls(calls);
    fill_guest_calls(calls);
    auto worker = Worker::create(4'000'000);
    HF_CHECK(worker.ok(), "a worker");
    (*worker)->preempt_after(static_cast<std::int64_t>(Settings{}.slice_us) * 1'000);
    SlotPool pool(actors + 1);
    const testing::Said said =
        testing::run_builder("--module " + wasm + " --cache " + cache.path());
    HF_CHECK(said.exit == 0, said.text.c_str());
    const auto json = nlohmann::json::parse(said.text);
    const auto module = load_module(json["so"], json["key"], calls, **worker, pool);
    HF_CHECK(module.ok(), "loading the module");

    ActorClass actor_class;
    actor_class.name = "counter";
    actor_class.program = module->program.get();
    actor_class.pages_max = 256;
    actor_class.deadlines = {100'000'000, 5'000'000'000};
    Residents residents(**worker, pool, actors);
    const Bytes post = http_event(
        "POST", "/", "", {{"host", "127.0.0.1:8080"}, {"x-request-id", "0123456789abcdef"}});

    const auto serve = [&](std::size_t actor) {
        Ran ran = residents.run(actor, 1, post, 1, 0);
        while (ran.ended == Ended::Preempted) ran = residents.go_on(actor, {}, 0);
        return ran;
    };

    // A stored state to start from.
    UnitState stored(0);
    stored.begin();
    const Bytes seven = {7, 0, 0, 0, 0, 0, 0, 0};
    HF_CHECK(!stored.put("n", seven, {60'000, "changes_bytes"}), "a stored state");
    const Bytes entry = stored.encode_changes();

    const std::size_t before = resident_kib();
    const auto now = [] { return static_cast<double>(monotonic_ns()) / 1000.0; };
    std::vector<double> opens;
    std::vector<double> firsts;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < actors; ++i)
        names.push_back("actor/default/counter/" + std::to_string(i));
    for (std::size_t i = 0; i < actors; ++i) {
        const double start = now();
        bool ok = residents.open(i, names[i], actor_class).ok() &&
                  residents.fold(i, entry, false).ok() && residents.part(i, 0, true).ok();
        const double opened = now();
        const Ran ran = serve(i);
        firsts.push_back(now() - opened);
        ok = ok && ran.ended == Ended::Ok && as_text(ran.output->reply_body) == "8\n";
        HF_CHECK(ok, "an actor served");
        opens.push_back(opened - start);
    }
    print("open_us", median(opens), "us", actors);
    print("activate_and_first_event_us", median(opens) + median(firsts), "us", actors);
    print("resident_kib",
          static_cast<double>(resident_kib() - before) / static_cast<double>(actors),
          "KiB",
          actors);

    std::vector<double> warm;
    std::vector<double> spread;
    for (int round = 0; round < kRounds; ++round) {
        constexpr int kEvents = 20'000;
        double start = now();
        for (int i = 0; i < kEvents; ++i) (void)serve(0);
        warm.push_back((now() - start) / kEvents);
        start = now();
        for (std::size_t i = 0; i < actors; ++i) (void)serve(i);
        spread.push_back((now() - start) / static_cast<double>(actors));
    }
    print("event_us", median(warm), "us", actors);
    print("event_spread_us", median(spread), "us", actors);

    // Mapping alone: drop and map again.
    Instance instance(*actor_class.program, pool, 256);
    residents.drop(0);
    std::vector<double> maps;
    for (int i = 0; i < 1000; ++i) {
        const double start = now();
        HF_CHECK(instance.map().ok(), "mapping");
        maps.push_back(now() - start);
        instance.drop();
    }
    print("map_us", median(maps), "us", actors);
    return 0;
}

}  // namespace

}  // namespace hf::wasm

int main(int argc, char** argv) {
    const std::size_t actors = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 10'000;
    if (actors < 1 || actors > 20'000) {
        std::fputs("wasm_bench: usage: wasm_bench [actors, 1 to 20000]\n", stderr);
        return 2;
    }
    return hf::wasm::run(HF_COUNTER_WASM, actors);
}
