// The plugin's own binary over a real link, with its second filter on: activation in pieces, events, failures, and that
// nothing executable is mapped after the start.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "abi/base/clock.hpp"
#include "plugins/runtime-wasm/testing/support.hpp"
#include "tests/abi/rig.hpp"

namespace hf::wasm {

using testing::http_event;
using testing::run_builder;
using testing::TempDir;

namespace {

constexpr int kPatienceMs = 20'000;  // sanitizer builds on a busy machine
constexpr std::uint64_t kFirstId = 10;

struct ModuleFile {
    std::string class_name;
    std::string so;
    std::string key;
    std::uint32_t pages_max = 32;
    std::uint32_t cpu_us = 100'000;
};

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

struct Answer {
    abi::DeliverStatus status = abi::DeliverStatus::Ok;
    std::string error;
    int reply = 0;
    std::string body;
    Bytes changes;
    std::uint32_t state_bytes = 0;
};

Bytes bytes_of(const flatbuffers::Vector<std::uint8_t>* vector) {
    return vector == nullptr ? Bytes{} : Bytes(vector->begin(), vector->end());
}

// One plugin process and the supervisor's side of its link.
class Runtime {
public:
    explicit Runtime(const std::vector<ModuleFile>& modules,
                     const std::vector<std::pair<std::string, std::string>>& settings = {}) {
        auto made = port::Channel::create(pool_, {}, 7, abi::Kind::Runtime);
        REQUIRE(made.ok());
        channel_ = std::move(made).value();
        child_ = rig::Child(HF_RUNTIME_WASM, {"--kind", "runtime"}, channel_->take_plugin_end());
        REQUIRE(channel_->attach({}).ok());
        bool greeted = false;
        bool answered = false;
        const auto handler = [&](const port::Received& received) {
            greeted = greeted || received.type == abi::Body::Greet;
            if (received.type != abi::Body::Ready) return;
            const auto& said = received.as<abi::Ready>();
            ready = said.ok();
            if (said.error() != nullptr) error = said.error()->str();
            answered = true;
        };
        REQUIRE(rig::run_until(
            *channel_, handler, [&] { return greeted; }, kPatienceMs));
        auto& fbb = channel_->builder();
        channel_->notify(abi::CreateWelcome(fbb, 0, 7, fbb.CreateString("test-node")));
        auto& again = channel_->builder();
        std::vector<flatbuffers::Offset<abi::Setting>> pairs;
        for (const auto& [key, value] : settings)
            pairs.push_back(abi::CreateSettingDirect(again, key.c_str(), value.c_str()));
        std::vector<flatbuffers::Offset<abi::Module>> files;
        for (const ModuleFile& file : modules)
            files.push_back(abi::CreateModuleDirect(again,
                                                    file.class_name.c_str(),
                                                    file.so.c_str(),
                                                    file.key.c_str(),
                                                    0,
                                                    file.pages_max,
                                                    file.cpu_us,
                                                    2'000'000));
        const auto list = again.CreateVector(pairs);
        const auto module_list = again.CreateVector(files);
        channel_->request(1, abi::CreateConfigure(again, 0, list, 42, 0, 0, module_list), 0, 0);
        (void)rig::run_until(
            *channel_, handler, [&] { return answered; }, kPatienceMs);
    }

    // The error of the last piece; empty: serving.
    std::string activate(std::uint64_t activation,
                         const std::string& class_name,
                         const std::vector<std::pair<Bytes, bool>>& entries = {}) {
        std::string failed;
        // One entry a piece, and an empty last one.
        for (std::size_t part = 0; part <= entries.size() && failed.empty(); ++part) {
            auto& fbb = channel_->builder();
            std::vector<flatbuffers::Offset<abi::StoredChanges>> stored;
            if (part < entries.size())
                stored.push_back(abi::CreateStoredChangesDirect(
                    fbb, part + 1, entries[part].second, &entries[part].first));
            const auto offset = abi::CreateActivateDirect(fbb,
                                                          "actor/t/c/n",
                                                          "t",
                                                          class_name.c_str(),
                                                          "n",
                                                          activation,
                                                          1,
                                                          static_cast<std::uint32_t>(part),
                                                          part < entries.size(),
                                                          &stored);
            ask(offset, [&](const port::Received& received) {
                const auto& said = received.as<abi::Activated>();
                CHECK(said.activation() == activation);
                CHECK(said.part() == part);
                if (!said.ok()) failed = said.error()->str();
            });
        }
        return failed;
    }

    Answer deliver(std::uint64_t activation, const Bytes& event) {
        Answer answer;
        auto& fbb = channel_->builder();
        const abi::EventId id(1, next_);
        ask(abi::CreateDeliver(fbb,
                               activation,
                               &id,
                               0,
                               abi::EventKind::Http,
                               fbb.CreateVector(event),
                               1'700'000'000'000),
            [&](const port::Received& received) {
                const auto& said = received.as<abi::Delivered>();
                answer.status = said.status();
                if (said.error() != nullptr) answer.error = said.error()->str();
                answer.reply = said.reply_status();
                answer.body = std::string(as_text(bytes_of(said.reply_body())));
                answer.changes = bytes_of(said.changes());
                answer.state_bytes = said.state_bytes();
            });
        return answer;
    }
    Answer get(std::uint64_t activation, const std::string& url) {
        return deliver(activation, http_event("GET", url));
    }

    Bytes checkpoint(std::uint64_t activation) {
        Bytes base;
        ask(abi::CreateCheckpoint(channel_->builder(), activation),
            [&](const port::Received& received) {
                CHECK(received.as<abi::Checkpointed>().ok());
                base = bytes_of(received.as<abi::Checkpointed>().base());
            });
        return base;
    }
    void drop(std::uint64_t activation) {
        ask(abi::CreateDrop(channel_->builder(), activation), [](const port::Received&) {});
    }

    // Lines of /proc/<pid>/maps that may be executed.
    [[nodiscard]] std::set<std::string> executable_maps() const {
        std::ifstream maps("/proc/" + std::to_string(child_.pid()) + "/maps");
        std::set<std::string> out;
        for (std::string line; std::getline(maps, line);)
            if (line.find("x", line.find(' ')) == line.find(' ') + 3) out.insert(line);
        return out;
    }
    [[nodiscard]] std::size_t rss_kib() const {
        std::ifstream status("/proc/" + std::to_string(child_.pid()) + "/status");
        for (std::string word; status >> word;)
            if (word == "VmRSS:") {
                std::size_t kib = 0;
                status >> kib;
                return kib;
            }
        return 0;
    }

    bool ready = false;
    std::string error;
    std::vector<std::string> logs;

private:
    template <class T>
    void ask(flatbuffers::Offset<T> body,
             const std::function<void(const port::Received&)>& on_answer) {
        const std::uint64_t id = next_++;
        REQUIRE(channel_->request(id, body, monotonic_ns() + 30'000'000'000, 0) !=
                port::Sent::Busy);
        bool answered = false;
        std::string fault;
        const auto handler = [&](const port::Received& received) {
            if (received.type == abi::Body::Log)
                logs.push_back(received.as<abi::Log>().text()->str());
            if (received.reply_to != id) return;
            answered = true;
            on_answer(received);
        };
        const bool done = rig::run_until(
            *channel_, handler, [&] { return answered; }, kPatienceMs, &fault);
        REQUIRE_MESSAGE(done, "no answer: " << fault);
    }

    port::SegmentPool pool_;
    std::unique_ptr<port::Channel> channel_;
    rig::Child child_;
    std::uint64_t next_ = kFirstId;
};

}  // namespace

TEST_CASE("a_counter_counts_is_moved_by_its_entries_and_by_its_checkpoint") {
    Runtime runtime({counter()});
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
    Runtime runtime({ledger()});
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
    Runtime runtime({small, counter()});
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
    Runtime runtime({file, counter(), tight});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "counter").empty());
    CHECK(runtime.get(1, "/").body == "0\n");
    CHECK(runtime.activate(2, "broken").find("does not have the hash its .meta names") !=
          std::string::npos);
    CHECK(runtime.activate(3, "tight") ==
          "class tight: memory_max is 1 pages of 64 KiB, the module starts with 3");
}

TEST_CASE("unknown_settings_refuse_the_start_and_the_bound_on_units_is_told") {
    Runtime unknown({}, {{"resident_max", "7"}});
    CHECK_FALSE(unknown.ready);
    CHECK(unknown.error ==
          "runtime-wasm knows no setting 'resident_max'; it knows resident_units_max");
    Runtime wrong({}, {{"resident_units_max", "20001"}});
    CHECK(wrong.error == "setting 'resident_units_max' is '20001', it must be 1 to 20000");
    Runtime two({counter()}, {{"resident_units_max", "2"}});
    REQUIRE(two.ready);
    CHECK(two.activate(1, "counter").empty());
    CHECK(two.activate(2, "counter").empty());
    CHECK(two.activate(3, "counter") == "limit resident_units_max: 2 units are resident here");
    two.drop(1);
    CHECK(two.activate(3, "counter").empty());
}

}  // namespace hf::wasm
