// Runs the storage contract against any plugin binary:
//   storage_conformance --plugin build/bin/storage-local --set path=DIR --trait any-keys ...
// With --own-directory it makes a directory and removes it. One line per case; exit 0 when all held, 1 when one
// did not, 2 when the plugin did not start.
#include <stdlib.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <map>
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

int run_all(hf::conformance::LinkedStorage& store, const std::string& only) {
    int failed = 0;
    for (const auto& one : hf::conformance::storage_contract()) {
        if (!only.empty() && only != one.name) continue;
        hf::conformance::Report report;
        const auto verdict = run_case(one, store, report);
        const char* word = "ok";
        if (verdict == hf::conformance::Verdict::Skipped)
            word = "skipped: the store does not promise it";
        if (verdict == hf::conformance::Verdict::Failed || !store.trouble().empty()) {
            word = "FAILED";
            ++failed;
        }
        std::printf("%-40s %s\n", one.name, word);
        for (const std::string& failure : report.failures())
            std::printf("    %s\n", failure.c_str());
        if (!store.trouble().empty()) {
            std::printf("    %s\n", store.trouble().c_str());
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

    hf::conformance::LinkedStorage store(arguments.plugin, settings, traits);
    if (const auto started = store.start(); !started) {
        std::fprintf(stderr,
                     "%s does not start: %s\n",
                     arguments.plugin.c_str(),
                     started.error().message.c_str());
        return kExitNoStart;
    }
    const int code = run_all(store, arguments.only);
    if (const int exit_code = store.shed(); exit_code != 0) {
        std::printf("%-40s FAILED: it did not end by itself with 0 (%d)\n", "sheds", exit_code);
        return kExitFailed;
    }
    return code;
}
