// Runs the storage contract against any plugin binary:
//   storage_conformance --plugin build/bin/storage-local --set path=DIR --trait any-keys ...
// With --own-directory it makes a directory and removes it. With --shared two processes of it run on the same settings and
// are asked in turn, so that each sees what the other did. One line per case; exit 0 when all held, 1 when one
// did not, 2 when the plugin did not start.
#include <stdlib.h>

#include <CLI/CLI.hpp>

#include <bit>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/linked_storage.hpp"

namespace {

using hf::conformance::Traits;

constexpr int kExitFailed = 1;
constexpr int kExitNoStart = 2;

const std::map<std::string, bool Traits::*> kTraits{
    {"any-keys", &Traits::any_key_bytes},
    {"ordered-writes", &Traits::ordered_writes},
    {"etag-per-write", &Traits::etag_per_write},
    {"conditional-deletes", &Traits::conditional_deletes},
    {"restart", &Traits::can_restart}};

struct Arguments {
    std::string plugin;
    std::vector<std::string> settings;
    std::vector<std::string> traits;
    std::string only;
    bool own_directory = false;
    bool shared = false;
};

class OwnDirectory {
public:
    OwnDirectory() {
        std::string name =
            (std::filesystem::temp_directory_path() / "hf-conformance-XXXXXX").string();
        if (::mkdtemp(name.data()) != nullptr) path_ = name;
    }
    ~OwnDirectory() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    OwnDirectory(const OwnDirectory&) = delete;
    OwnDirectory& operator=(const OwnDirectory&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

using Processes = std::vector<std::unique_ptr<hf::conformance::LinkedStorage>>;

// The same store by two processes: what one was asked, the other is asked about next. The turns are those of a sequence
// without a pattern, so that no kind of request always meets the same one.
class SharedStorage final : public hf::conformance::StorageUnderTest {
public:
    explicit SharedStorage(Processes& processes) : processes_(&processes) {}
    [[nodiscard]] Traits traits() const override { return processes_->front()->traits(); }
    hf::conformance::GotReply get(const std::string& key) override { return next().get(key); }
    std::vector<hf::conformance::StoredReply> put_all(
        std::span<const hf::conformance::PutCall> calls) override {
        return next().put_all(calls);
    }
    hf::conformance::DeletedReply erase(const hf::conformance::DeleteCall& call) override {
        return next().erase(call);
    }
    hf::conformance::ListedReply list(const hf::conformance::ListCall& call) override {
        return next().list(call);
    }
    hf::conformance::ProbedReply probe() override { return next().probe(); }
    std::vector<hf::conformance::StoredReply> put_and_kill(
        std::span<const hf::conformance::PutCall> calls, std::vector<bool>& answered) override {
        return next().put_and_kill(calls, answered);
    }

private:
    // Thue and Morse: the parity of a number's ones.
    hf::conformance::LinkedStorage& next() {
        return *(
            *processes_)[static_cast<std::size_t>(std::popcount(turn_++)) % processes_->size()];
    }
    Processes* processes_;
    std::uint64_t turn_ = 0;
};

std::string trouble_of(const Processes& processes) {
    for (const auto& one : processes)
        if (!one->trouble().empty()) return one->trouble();
    return {};
}

int run_all(hf::conformance::StorageUnderTest& store,
            const Processes& processes,
            const std::string& only) {
    int failed = 0;
    for (const auto& one : hf::conformance::storage_contract()) {
        if (!only.empty() && only != one.name) continue;
        hf::conformance::Report report;
        const auto verdict = run_case(one, store, report);
        const char* word = "ok";
        if (verdict == hf::conformance::Verdict::Skipped)
            word = "skipped: the store does not promise it";
        const std::string trouble = trouble_of(processes);
        if (verdict == hf::conformance::Verdict::Failed || !trouble.empty()) {
            word = "FAILED";
            ++failed;
        }
        std::printf("%-40s %s\n", one.name, word);
        for (const std::string& failure : report.failures())
            std::printf("    %s\n", failure.c_str());
        if (!trouble.empty()) {
            std::printf("    %s\n", trouble.c_str());
            break;
        }
    }
    return failed == 0 ? 0 : kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{"Runs the storage contract against a plugin binary"};
    app.add_option("--plugin", arguments.plugin, "the plugin's executable")->required();
    app.add_option("--set", arguments.settings, "a setting for the plugin, key=value");
    app.add_option("--trait", arguments.traits, "what the store promises beyond the core")
        ->check(CLI::IsMember(kTraits));
    app.add_option("--case", arguments.only, "run this case alone");
    app.add_flag("--own-directory",
                 arguments.own_directory,
                 "give it a fresh directory as its setting `path`");
    app.add_flag("--shared", arguments.shared, "two processes of it, asked in turn");
    CLI11_PARSE(app, argc, argv);

    const OwnDirectory directory;
    hf::conformance::Settings settings;
    if (arguments.own_directory) settings.emplace_back("path", directory.path());
    for (const std::string& setting : arguments.settings) {
        const std::size_t equals = setting.find('=');
        settings.emplace_back(setting.substr(0, equals),
                              equals == std::string::npos ? "" : setting.substr(equals + 1));
    }
    Traits traits;
    for (const std::string& trait : arguments.traits) traits.*kTraits.at(trait) = true;

    Processes processes;
    for (int i = 0; i < (arguments.shared ? 2 : 1); ++i) {
        processes.push_back(
            std::make_unique<hf::conformance::LinkedStorage>(arguments.plugin, settings, traits));
        if (const auto started = processes.back()->start(); !started) {
            std::fprintf(stderr,
                         "%s does not start: %s\n",
                         arguments.plugin.c_str(),
                         started.error().message.c_str());
            return kExitNoStart;
        }
    }
    SharedStorage shared(processes);
    hf::conformance::StorageUnderTest& store =
        arguments.shared ? static_cast<hf::conformance::StorageUnderTest&>(shared)
                         : *processes.front();
    int code = run_all(store, processes, arguments.only);
    for (const auto& one : processes) {
        if (const int exit_code = one->shed(); exit_code != 0) {
            std::printf("%-40s FAILED: it did not end by itself with 0 (%d)\n", "sheds", exit_code);
            code = kExitFailed;
        }
    }
    return code;
}
