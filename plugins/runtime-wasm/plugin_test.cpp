// The plugin's own binary over a real link, with its second filter on: activation in pieces, events, failures, and that
// nothing executable is mapped after the start.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "plugins/runtime-wasm/testing/machine.hpp"
#include "plugins/runtime-wasm/testing/plain_process.hpp"

namespace hf::wasm {

using testing::Answer;
using testing::http_event;
using testing::ModuleFile;
using testing::run_builder;
using testing::Runtime;
using testing::TempDir;

namespace {

ModuleFile build(const TempDir& cache, const std::string& class_name, const std::string& wasm) {
    const testing::Said said = run_builder("--module " + wasm + " --cache " + cache.path());
    REQUIRE_MESSAGE(said.exit == 0, said.text);
    const auto json = nlohmann::json::parse(said.text);
    return {class_name, json["so"], json["key"]};
}

const TempDir& cache() {
    static const TempDir dir;
    return dir;
}
const ModuleFile& counter() {
    static const ModuleFile file = build(cache(), "counter", HF_COUNTER_WASM);
    return file;
}
const ModuleFile& misfit() {
    static const ModuleFile file = build(cache(), "misfit", HF_MISFIT_WASM);
    return file;
}
const ModuleFile& ledger() {
    static const ModuleFile file = build(cache(), "ledger", HF_LEDGER_WASM);
    return file;
}

// Does what its events say, see testing/machine.hpp.
const ModuleFile& machine_file() {
    static const ModuleFile file = [] {
        testing::write_file(cache() / "machine.wasm", testing::wasm_of(testing::machine()));
        return build(cache(), "machine", cache() / "machine.wasm");
    }();
    return file;
}

using testing::Plain;

}  // namespace

TEST_CASE("a_counter_counts_is_moved_by_its_entries_and_by_its_checkpoint") {
    Plain runtime({counter()});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "counter").empty());
    CHECK(runtime.get(1, "/").body == "0\n");
    std::vector<std::pair<Bytes, bool>> entries;
    for (int i = 1; i <= 3; ++i) {
        const Answer answer = runtime.deliver(1, http_event("POST", "/"));
        CHECK(answer.body == std::to_string(i) + "\n");
        CHECK(answer.reply == 200);
        CHECK(answer.state_bytes == 1 + 8 + kPairOverheadBytes);
        entries.emplace_back(answer.changes, false);
    }
    CHECK(runtime.get(1, "/").changes.empty());
    CHECK(runtime.activate(2, "counter", entries).empty());
    CHECK(runtime.get(2, "/").body == "3\n");
    const Bytes base = runtime.checkpoint(2);
    CHECK(runtime.checkpointed);
    CHECK(runtime.activate(3, "counter", {{base, true}, {entries[0].first, false}}).empty());
    CHECK(runtime.get(3, "/").body == "1\n");
    runtime.drop(2);
    CHECK(runtime.get(2, "/").status == abi::DeliverStatus::NotResident);
    CHECK(runtime.get(1, "/").body == "3\n");
    CHECK(runtime.activate(4, "counter", {{Bytes{1, 2, 3}, false}}) ==
          "a stored entry of 3 bytes is not a ChangeSet");
    CHECK(runtime.get(4, "/").status == abi::DeliverStatus::NotResident);
    CHECK(runtime.activate(5, "no-such") == "class no-such is not configured here");
}

TEST_CASE("a_ledger_sees_what_was_applied_twice") {
    Plain runtime({ledger()});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "ledger").empty());
    const auto add = [&](const std::string& id) {
        return runtime.deliver(1, http_event("POST", "/add", "", {{"X-Request-Id", id}}));
    };
    CHECK(add("a").body == "1\n");
    CHECK(add("b").body == "1\n");
    CHECK(add("a").body == "2\n");
    CHECK(runtime.get(1, "/ids").body == "2 3\n");
    CHECK(runtime.get(1, "/id?a").body == "2\n");
    CHECK(runtime.get(1, "/id?c").body == "0\n");
    CHECK(runtime.deliver(1, http_event("POST", "/add")).reply == 400);
    for (int i = 2; i < 2048; ++i) CHECK(add("id-" + std::to_string(i)).reply == 200);
    CHECK(add("one too many").reply == 507);
    CHECK(runtime.get(1, "/ids").body == "2048 2049\n");
    CHECK(runtime.deliver(1, http_event("DELETE", "/")).reply == 200);
    CHECK(runtime.get(1, "/ids").body == "0 0\n");
}

TEST_CASE("misfits_end_by_name_while_a_healthy_actor_is_served_and_no_code_is_mapped") {
    ModuleFile small = misfit();
    small.cpu_us = 50'000;
    Plain runtime({small, counter()});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    const std::set<std::string> code = runtime.executable_maps();
    CHECK(code.size() > 2);
    CHECK(runtime.activate(1, "misfit").empty());
    CHECK(runtime.activate(2, "counter").empty());
    CHECK(runtime.get(1, "/count").body == "1\n");
    const std::size_t rss = runtime.rss_kib();

    using S = abi::DeliverStatus;
    const struct {
        const char* url;
        S status;
        const char* error;
    } cases[] = {
        {"/loop", S::CpuDeadline, "cpu_limit"},
        {"/spin", S::CpuDeadline, "cpu_limit"},
        {"/fill", S::CpuDeadline, "cpu_limit"},
        {"/sleepy", S::CpuDeadline, "cpu_limit"},
        {"/recurse",
         S::Trapped,
         "out of bounds"},  // the shadow stack lies first and is used up first
        {"/trap", S::Trapped, "unreachable"},
        {"/divide", S::Trapped, "divide by zero"},
        {"/wild", S::Trapped, "out of bounds"},
        {"/indirect", S::Trapped, "call_indirect"},
        {"/abort", S::Failed, "abort: the misfit gives up"},
        {"/fail", S::Failed, "answered -42"},
        {"/write-trap", S::Trapped, "unreachable"},
        {"/write-fail", S::Failed, "answered -43"},
        {"/write-loop", S::CpuDeadline, "cpu_limit"},
    };
    int counted = 1;
    int healthy = 0;
    for (const auto& each : cases) {
        const Answer answer = runtime.get(1, each.url);
        CHECK_MESSAGE(answer.status == each.status, (each.url + (": " + answer.error)));
        CHECK_MESSAGE(answer.error.find(each.error) != std::string::npos,
                      (each.url + (": " + answer.error)));
        CHECK(answer.reply == 0);
        CHECK(answer.changes.empty());
        CHECK(runtime.get(1, "/count").body == std::to_string(++counted) + "\n");
        CHECK(runtime.deliver(2, http_event("POST", "/")).body == std::to_string(++healthy) + "\n");
    }
    CHECK(runtime.get(1, "/grow").body == "32\n");
    CHECK(runtime.get(1, "/value?49153").body == "-3\n");
    CHECK(runtime.get(1, "/value?40000").body == "0\n");
    CHECK(runtime.get(1, "/body?49152").body.size() == 49152);
    const Answer big = runtime.get(1, "/body?49153");
    CHECK(big.status == S::Limit);
    CHECK(big.error == "limit reply_bytes: 49152 allowed, 49153 asked for");
    CHECK(runtime.get(1, "/headers?12289").status == S::Limit);
    CHECK(runtime.get(1, "/headers?12288").reply == 200);
    // The largest answer there is fits its record.
    const Answer full = runtime.get(1, "/both?30600");
    CHECK(full.body.size() == 30600);
    CHECK(full.changes.size() > 30600);
    CHECK(
        runtime.get(1, "/both?30700").error.starts_with("limit event_output_bytes: 61440 allowed"));
    CHECK(runtime.get(1, "/silent").reply == 0);
    CHECK(runtime.get(1, "/twice").body == "first\n");
    CHECK(runtime.deliver(1, http_event("POST", "/echo", std::string(48 * 1024, 'e'))).body ==
          std::string(48 * 1024, 'e'));
    CHECK(runtime.get(1, "/random").body != runtime.get(1, "/random").body);

    // The gate holds back what is beyond a share; the last line says how many.
    for (int i = 0; i < 8; ++i) CHECK(runtime.get(1, "/log?20").reply == 200);
    CHECK(!runtime.logs.empty());
    CHECK(runtime.logs.size() <= 100);
    CHECK(runtime.logs[0] == "actor/t/c/n: a misfit says something");

    CHECK(runtime.executable_maps() == code);
    CHECK(runtime.rss_kib() < rss + 20 * 1024);
}

TEST_CASE("a_damaged_module_takes_down_its_own_class_only") {
    const TempDir own;
    const ModuleFile file = build(own, "broken", HF_LEDGER_WASM);
    std::ofstream(file.so, std::ios::app) << "x";
    ModuleFile tight = misfit();
    tight.class_name = "tight";
    tight.pages_max = 1;
    Plain runtime({file, counter(), tight});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "counter").empty());
    CHECK(runtime.get(1, "/").body == "0\n");
    CHECK(runtime.activate(2, "broken").find("does not have the hash its .meta names") !=
          std::string::npos);
    CHECK(runtime.activate(3, "tight") ==
          "class tight: memory_max is 1 pages of 64 KiB, the module starts with 3");
}

TEST_CASE("a_build_that_the_supervisor_does_not_vouch_for_is_not_loaded") {
    ModuleFile other = counter();
    other.class_name = "other";
    other.vouched = std::string(64, '0');
    Plain runtime({other});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "other").find("is not the build that this node vouches for") !=
          std::string::npos);
}

TEST_CASE("a_class_that_must_load_and_cannot_refuses_the_whole_start") {
    ModuleFile tight = misfit();
    tight.pages_max = 1;
    tight.must_load = true;
    Plain runtime({counter(), tight});
    CHECK_FALSE(runtime.ready);
    CHECK(runtime.error ==
          "class misfit: memory_max is 1 pages of 64 KiB, the module starts with 3");
}

TEST_CASE("unknown_settings_refuse_the_start_and_the_bound_on_units_is_told") {
    Plain unknown({}, {{"resident_max", "7"}});
    CHECK_FALSE(unknown.ready);
    CHECK(unknown.error ==
          "runtime-wasm knows no setting 'resident_max'; it knows resident_units_max, "
          "parked_events_max and slice_us");
    Plain wrong({}, {{"resident_units_max", "20001"}});
    CHECK(wrong.error == "setting 'resident_units_max' is '20001', it must be 1 to 20000");
    Plain two({counter()}, {{"resident_units_max", "2"}});
    REQUIRE(two.ready);
    CHECK(two.activate(1, "counter").empty());
    CHECK(two.activate(2, "counter").empty());
    CHECK(two.activate(3, "counter") == "limit resident_units_max: 2 units are resident here");
    two.drop(1);
    CHECK(two.activate(3, "counter").empty());
}

TEST_CASE("an_event_that_computes_gives_way_to_one_that_came_later") {
    // As long as half of an event may use the CPU; both are read as one batch.
    const Bytes computes = testing::program({testing::burn(30'000'000)});
    const auto order = [&](const std::string& slice_us) {
        Plain runtime({machine_file(), counter()}, {{"slice_us", slice_us}});
        REQUIRE_MESSAGE(runtime.ready, runtime.error);
        REQUIRE(runtime.activate(1, "machine").empty());
        REQUIRE(runtime.activate(2, "counter").empty());
        return runtime.race({{1, computes}, {2, http_event("POST", "/")}});
    };
    CHECK(order("250") == std::vector<std::size_t>{1, 0});
    CHECK(order("0") == std::vector<std::size_t>{0, 1});
}

TEST_CASE("as_many_events_wait_as_the_setting_says_and_every_unit_goes_on") {
    constexpr std::uint64_t kUnits = 300;
    ModuleFile patient = machine_file();
    patient.wall_us = 60'000'000;
    Plain runtime({patient, counter()}, {{"parked_events_max", "256"}});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    const Bytes calls =
        testing::program({testing::call(testing::kTarget, testing::kMethod, testing::kValue, 500),
                          testing::result(0),
                          testing::word(testing::kFree)});
    const auto words = [](const Answer& answer) {
        std::vector<std::int32_t> out(answer.body.size() / 4);
        std::memcpy(out.data(), answer.body.data(), out.size() * 4);
        return out;
    };
    CHECK(runtime.activate(1000, "counter").empty());
    CHECK_FALSE(runtime.wants_stop);
    const std::size_t before = runtime.rss_kib();
    std::size_t waiting = 0;
    for (std::uint64_t unit = 1; unit <= kUnits; ++unit) {
        REQUIRE(runtime.activate(unit, "machine").empty());
        CHECK(runtime.wants_stop);  // its module has the marker
        const Answer answer = runtime.deliver(unit, calls);
        if (answer.status == abi::DeliverStatus::Calling) {
            ++waiting;
            CHECK(answer.call == testing::Sent{"bank/alice", "pay", "value"});
            CHECK(answer.call_n == 1);
            CHECK(answer.timeout_ms == 500);
            CHECK(answer.reply == 0);
            CHECK(answer.changes.empty());
        } else {
            CHECK(words(answer) == testing::Words{-4, -2, 0});
        }
    }
    CHECK(waiting == 256);
    MESSAGE("256 waiting and 300 resident take " << runtime.rss_kib() - before << " KiB");
    CHECK(runtime.deliver(1000, http_event("POST", "/")).body == "1\n");
    CHECK_FALSE(runtime.quiesced(1));
    CHECK(runtime.quiesced(300));
    (void)runtime.checkpoint(1);
    CHECK_FALSE(runtime.checkpointed);
    CHECK(runtime.deliver(1, calls).status == abi::DeliverStatus::Failed);
    CHECK(runtime.resume(1, 2, "x").status == abi::DeliverStatus::NotResident);
    for (std::uint64_t unit = 1; unit <= 256; unit += 2) {
        const auto number = static_cast<std::int32_t>(unit);
        const std::string text(reinterpret_cast<const char*>(&number), 4);
        CHECK(words(runtime.resume(unit, 1, text)) == testing::Words{0, 4, number});
        // Every other one is dropped where it waits.
        runtime.drop(unit + 1);
        CHECK(runtime.resume(unit + 1, 1, "x").status == abi::DeliverStatus::NotResident);
    }
    CHECK(runtime.deliver(300, calls).status == abi::DeliverStatus::Calling);
    CHECK(words(runtime.resume(300, 1, "", -5)) == testing::Words{-5, -2, 0});
    CHECK(runtime.deliver(1000, http_event("POST", "/")).body == "2\n");
}

TEST_CASE("everything_an_event_leaves_is_in_its_answer_and_fits_it") {
    using namespace testing;  // NOLINT(google-build-using-namespace): the machine's steps
    Plain runtime({machine_file()});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "machine", {}, 77).empty());
    Answer answer = runtime.deliver(1,
                                    program({alarm_get(),
                                             put(kKey, kValue),
                                             send(kTarget, kMethod, kValue),
                                             ws_send(5, 1, kValue),
                                             ws_close(6, 4000, kKey),
                                             alarm_set(99),
                                             passivate(),
                                             reply(kValue)}),
                                    abi::EventKind::Call);
    CHECK(answer.status == abi::DeliverStatus::Ok);
    CHECK(answer.replied);
    CHECK(answer.body == "value");
    CHECK(answer.passivate);
    CHECK(answer.alarm_ms == 99);
    CHECK(answer.sends == std::vector<Sent>{{"bank/alice", "pay", "value"}});
    CHECK(answer.sockets == std::vector<Command>{{5, false, 0, "value"}, {6, true, 4000, "key"}});
    CHECK_FALSE(answer.changes.empty());
    answer = runtime.deliver(1, program({alarm_clear()}));
    CHECK(answer.alarm_ms == 0);
    CHECK_FALSE(answer.replied);
    CHECK(answer.reply == 200);
    // Of what failed nothing is in it.
    answer = runtime.deliver(1,
                             program({send(kTarget, kMethod, kValue),
                                      ws_send(5, 1, kValue),
                                      alarm_set(5),
                                      passivate(),
                                      trap()}));
    CHECK(answer.status == abi::DeliverStatus::Trapped);
    CHECK(answer.sends.empty());
    CHECK(answer.sockets.empty());
    CHECK(answer.alarm_ms == -1);
    CHECK_FALSE(answer.passivate);
    // As much of everything as there may be: the largest answer fits its record.
    std::vector<Step> most;
    for (std::size_t i = 0; i < kSendsMax; ++i) most.push_back(send(kTarget, kMethod, {0, 17}));
    for (std::uint32_t i = 0; i < kSocketCommandsMax; ++i) most.push_back(ws_send(i, 2, {0, 1}));
    most.push_back(put(kKey, {0, 40'000}));
    most.push_back(alarm_set(7));
    const std::size_t taken = kSendsMax * (13 + 17 + kOutputOverheadBytes) +
                              kSocketCommandsMax * (1 + kOutputOverheadBytes) +
                              kChangeSetHeadBytes + 3 + 40'000 + kPairOverheadBytes;
    const auto body = static_cast<std::uint32_t>(kEventOutputBytesMax - taken);
    most.push_back(http_reply(200, {0, body + 1}));
    most.push_back(http_reply(200, {0, body}));
    answer = runtime.deliver(1, program(most));
    CHECK(answer.body.size() == body);
    CHECK(answer.sends.size() == kSendsMax);
    CHECK(answer.sockets.size() == kSocketCommandsMax);
}

}  // namespace hf::wasm
