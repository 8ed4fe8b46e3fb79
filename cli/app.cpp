#include "cli/app.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <utility>

#include "abi/base/clock.hpp"
#include "cli/dump.hpp"
#include "cli/exit_codes.hpp"
#include "cli/show.hpp"
#include "cli/text.hpp"
#include "cli/wire.hpp"

namespace hf::cli {

namespace {

using std::chrono::milliseconds;

// A loop turn of a busy node is milliseconds; five seconds of silence mean that something is wrong.
constexpr milliseconds kAskTimeout{5'000};
// Three stages of at most 2 s, a start of at most 10 s, and as much again for a roll-back.
constexpr milliseconds kSwapTimeout{60'000};
// A build of at most 300 s, a start of 10 s, and 2 s until the new version has lasted.
constexpr milliseconds kDeployTimeout{400'000};
// For the programs beside us: reading a module of the largest size takes a few seconds on a slow machine.
constexpr milliseconds kBesideTimeout{60'000};
// holdfast-wasm-build's exit code for a command line it does not understand.
constexpr int kInspectUsage = 2;
// One page of actors: 1 000 rows of the longest names stay below the line bound of 1 MiB.
constexpr std::uint32_t kActorsPage = 100;
constexpr std::uint32_t kActorsPageMax = 1'000;

constexpr const char* kFooter =
    "Which node: --node DIR, else $HOLDFAST_DATA, else the one of `./dev run` when this program "
    "lies in its build tree,\n"
    "else /var/lib/holdfast.\n"
    "Exit codes: 0 done; 1 the node says no; 2 wrong command line or configuration; 3 no node "
    "reachable;\n"
    "4 the node did not answer in time.\n";

struct Options {
    std::string node;
    std::string timeout;
    bool json = false;

    std::string plugin;
    std::string policy;
    std::string binary;
    std::vector<std::string> settings;
    std::vector<std::string> unset;
    bool fresh = false;
    bool reset = false;
    bool rollback = false;
    std::string drained;  // a node's id

    std::string class_name;
    std::string actor;
    std::uint32_t limit = kActorsPage;
    std::string after;
    bool all = false;

    std::string file;
};

// A command line in the making. Each command leaves its action in `action`; parsing runs nothing.
class App {
public:
    App(const Surroundings& around, std::ostream& out, std::ostream& err)
        : around_(around), out_(out), err_(err) {
        cli_.name("holdfast");
        cli_.footer(kFooter);
        cli_.set_version_flag("--version", "holdfast " HF_VERSION);
        cli_.add_option("--node", options_.node, "data directory of the node")->type_name("DIR");
        cli_.add_option("--timeout", options_.timeout, "how long to wait: 500ms, 5s, 2m")
            ->type_name("TIME");
        cli_.add_flag("--json", options_.json, "one line of JSON on standard output");
        cli_.require_subcommand(1);
        add_looking();
        add_swapping();
        add_offline();
    }

    int run(std::vector<std::string> words) {
        const bool wants_json = std::find(words.begin(), words.end(), "--json") != words.end();
        std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
        try {
            cli_.parse(std::move(words));
        } catch (const CLI::Success& asked) {  // --help, --version
            return cli_.exit(asked, out_, err_);
        } catch (const CLI::RequiredError& error) {
            // CLI11 counts what is missing before it looks at what it did not know.
            options_.json = wants_json;
            const std::vector<std::string> unknown = cli_.remaining(true);
            return fail(
                Exit::Usage,
                "usage",
                (unknown.empty() ? std::string(error.what()) : no_such_command(unknown.front())) +
                    see_help());
        } catch (const CLI::ParseError& error) {
            options_.json = wants_json;
            return fail(Exit::Usage, "usage", std::string(error.what()) + see_help());
        }
        if (!options_.timeout.empty() && !parse_duration(options_.timeout))
            return fail(
                Exit::Usage,
                "usage",
                "--timeout " + options_.timeout + ": want 1ms to 60m, such as 500ms, 5s or 2m");
        return action_();
    }

private:
    // The command that was meant, as far as it was understood.
    [[nodiscard]] const CLI::App* deepest(std::string& words) const {
        const CLI::App* at = &cli_;
        while (!at->get_subcommands().empty()) {
            at = at->get_subcommands().front();
            words += " " + at->get_name();
        }
        return at;
    }

    [[nodiscard]] std::string see_help() const {
        std::string words;
        static_cast<void>(deepest(words));
        return " (see holdfast" + words + " --help)";
    }

    [[nodiscard]] std::string no_such_command(const std::string& word) const {
        std::string words;
        std::vector<std::string> known;
        for (const CLI::App* one : deepest(words)->get_subcommands(nullptr))
            known.push_back(one->get_name());
        std::string out = "no such command: " + (words.empty() ? "" : words.substr(1) + " ") + word;
        if (const auto near = nearest(word, known)) return out + "; did you mean '" + *near + "'?";
        std::string list;
        for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
        return list.empty() ? out : out + "; there is " + list;
    }

    CLI::App* command(CLI::App& parent,
                      const char* name,
                      const char* what,
                      const char* example,
                      std::function<int()> action) {
        CLI::App* one = parent.add_subcommand(name, what);
        one->footer(std::string("Example:\n  ") + example + "\n");
        one->fallthrough();  // --json, --node and --timeout may follow the command
        one->final_callback([this, action = std::move(action)] { action_ = action; });
        return one;
    }

    CLI::App* group(const char* name, const char* what) {
        CLI::App* one = cli_.add_subcommand(name, what);
        one->fallthrough();
        one->require_subcommand(1);
        return one;
    }

    void add_looking() {
        command(cli_,
                "status",
                "the node, its policies, links and missing walls",
                "holdfast status --json",
                [this] {
                    return query({{"op", "status"}}, show_status);
                });
        command(cli_,
                "plugins",
                "each plugin: state, generation, restarts, last exit, bad builds",
                "holdfast plugins",
                [this] {
                    return query({{"op", "plugins"}}, show_plugins);
                });
        CLI::App& cluster = *group("cluster", "the nodes that share this node's store");
        command(cluster,
                "status",
                "each node as its record in the store says, and what this one makes of it",
                "holdfast cluster status",
                [this] {
                    return query({{"op", "cluster"}}, show_cluster);
                });
        for (const bool drain : {true, false}) {
            const char* name = drain ? "drain" : "undrain";
            command(cluster,
                    name,
                    drain ? "a node gives all its actors to the others and takes no more; it answers on"
                          : "a node takes actors again",
                    drain ? "holdfast cluster drain n2" : "holdfast cluster undrain n2",
                    [this, name] {
                        return change({{"op", name}, {"node", options_.drained}});
                    })
                ->add_option("node", options_.drained, "its id in `holdfast cluster status`")
                ->required();
        }
        CLI::App* actors =
            command(cli_,
                    "actors",
                    "the actors this node holds",
                    "holdfast actors --class counter --limit 20",
                    [this] {
                        if (letters_->parsed()) return query({{"op", "letters"}}, show_letters);
                        if (!options_.actor.empty())
                            return query({{"op", "actor"}, {"actor", options_.actor}}, show_fields);
                        return list_actors();
                    });
        actors->add_subcommand("show", "one actor: queue, journal, messages, alarm, sockets")
            ->add_option("actor", options_.actor, "as in its address: counter/alice")
            ->type_name("CLASS/NAME")
            ->required();
        letters_ = actors->add_subcommand("letters", "messages that were given up, newest first");
        actors->fallthrough();
        actors->add_option("--class", options_.class_name, "only this class")->type_name("CLASS");
        actors->add_option("--limit", options_.limit, "how many at once")
            ->check(CLI::Range(1U, kActorsPageMax))
            ->capture_default_str();
        actors->add_option("--after", options_.after, "go on behind this unit")->type_name("UNIT");
        actors->add_flag("--all", options_.all, "page until the end");
    }

    void add_swapping() {
        CLI::App* swap = command(
            cli_,
            "swap",
            "run another policy or binary, live; comes back when it serves or was rolled back",
            "holdfast swap placement --policy least-loaded\n"
            "  holdfast swap placement --policy first-fit --binary ./first-fit --set fill=100\n"
            "Settings stay with the same program and policy; another of either starts without any.",
            [this] { return swap_plugin(); });
        swap->add_option("plugin", options_.plugin, "its name in `holdfast plugins`")->required();
        swap->add_option("--policy", options_.policy, "the policy's name, as the binary offers it")
            ->type_name("NAME");
        swap->add_option("--binary",
                         options_.binary,
                         "the plugin's executable; without it: the one that serves")
            ->type_name("PATH");
        swap->add_option("--set", options_.settings, "a setting of the policy, may be repeated")
            ->type_name("KEY=VALUE")
            ->take_all()
            ->allow_extra_args(false);
        swap->add_option("--unset", options_.unset, "take a setting out, may be repeated")
            ->type_name("KEY")
            ->take_all()
            ->allow_extra_args(false);
        swap->add_flag("--fresh", options_.fresh, "without the settings of the policy that serves");
        CLI::App* back =
            command(cli_,
                    "rollback",
                    "back to what served before the last swap",
                    "holdfast rollback placement",
                    [this] {
                        return change({{"op", "rollback"}, {"plugin", options_.plugin}});
                    });
        back->add_option("plugin", options_.plugin, "its name in `holdfast plugins`")->required();
        CLI::App* deploy = command(
            cli_,
            "deploy",
            "another module for a class, live; comes back when it serves or the old one stays",
            "holdfast deploy counter counter.wasm\n"
            "  holdfast deploy counter --rollback     the module before it\n"
            "  holdfast deploy counter --reset        what agent.toml says",
            [this] { return deploy_module(); });
        deploy->add_option("class", options_.class_name, "the class of actors")->required();
        deploy->add_option("module", options_.file, "the .wasm file")->type_name("MODULE.wasm");
        deploy->add_flag("--rollback", options_.rollback, "back to the module before");
        deploy->add_flag("--reset", options_.reset, "back to the module that agent.toml names");
        CLI::App* reset = command(*group("plugin", "start a failed plugin afresh"),
                                  "reset",
                                  "start a failed plugin afresh and forget its bad builds",
                                  "holdfast plugin reset runtime",
                                  [this] {
                                      return change({{"op", "reset"}, {"plugin", options_.plugin}});
                                  });
        reset->add_option("plugin", options_.plugin, "the plugin's name")->required();
    }

    void add_offline() {
        CLI::App* config = group("config", "agent.toml");
        CLI::App* check = command(
            *config,
            "check",
            "judge a file without starting anything; needs no node",
            "holdfast config check /etc/holdfast/agent.toml",
            [this] {
                return beside("holdfastd", "--check-config", config_file(around_, options_.file));
            });
        check
            ->add_option(
                "file", options_.file, "default: ./agent.toml, else /etc/holdfast/agent.toml")
            ->type_name("FILE");
        CLI::App* show = command(*config,
                                 "show",
                                 "every effective value and who set it: of a file, or of the "
                                 "running node when no file is named",
                                 "holdfast config show agent.toml --json",
                                 [this] { return config_show(); });
        show->add_option(
                "file", options_.file, "without it: the running node's, else the default file's")
            ->type_name("FILE");
        command(*config,
                "reload",
                "the running node reads its agent.toml again: all of it, or nothing is changed",
                "holdfast config reload",
                [this] {
                    return change({{"op", "config-reload"}}, show_reload);
                });
        CLI::App* bundle = command(
            cli_,
            "dump",
            "one bundle for a bug report: states, settings, logs, exits, facts of the machine; no "
            "store, no secrets; also of a node that is down",
            "holdfast dump\n  holdfast dump /tmp/report.tar.gz\n  holdfast dump /tmp/report-dir",
            [this] { return dump(); });
        bundle
            ->add_option("to",
                         options_.file,
                         "a file that ends in .tar.gz, or a directory that is made; without it a "
                         "file in the working directory")
            ->type_name("FILE.tar.gz|DIR");
        CLI::App* build = command(
            cli_,
            "build",
            "judge an actor's module as the node would, and tell what it needs; needs no node",
            "holdfast build counter.wasm",
            [this] { return build_module(); });
        build->add_option("module", options_.file, "the .wasm file")
            ->required()
            ->type_name("MODULE.wasm");
    }

    [[nodiscard]] std::filesystem::path data() const {
        return data_directory(around_, options_.node);
    }

    [[nodiscard]] milliseconds timeout(milliseconds otherwise) const {
        return parse_duration(options_.timeout).value_or(otherwise);
    }

    static std::string failure(const std::string& code, const std::string& message) {
        return Json{{"error", {{"code", code}, {"message", message}}}}.dump(
            -1, ' ', false, Json::error_handler_t::replace);
    }

    int fail(Exit exit, const std::string& code, const std::string& message) {
        if (options_.json) out_ << failure(code, message) << '\n';
        err_ << "holdfast: " << printable(message) << '\n';
        return static_cast<int>(exit);
    }

    // A program beside us did not do its work.
    int fail(const Error& error) {
        switch (error.code) {
            case Code::NotFound:
                return fail(Exit::Usage, "not_found", error.message);
            case Code::Timeout:
                return fail(Exit::Timeout, "timeout", error.message);
            default:
                return fail(Exit::No, "io", error.message);
        }
    }

    int fail(const Answer& answer) { return fail(answer.exit, answer.code, answer.message); }

    int print(const Json& result, const std::function<void(std::ostream&, const Json&)>& show) {
        if (options_.json)
            out_ << result.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
        else
            show(out_, result);
        return static_cast<int>(Exit::Ok);
    }

    Answer ask_node(const Json& request, milliseconds limit, const OnProgress& on_progress = {}) {
        const auto directory = data();
        Answer answer = ask(directory, request, limit, on_progress);
        std::error_code ignored;
        // Who named the node knows where we looked.
        if (answer.exit == Exit::Unreachable && options_.node.empty() &&
            !std::filesystem::exists(control_socket(directory), ignored))
            answer.message += "; looked in " + places_tried(around_);
        return answer;
    }

    int query(const Json& request, const std::function<void(std::ostream&, const Json&)>& show) {
        const Answer answer = ask_node(request, timeout(kAskTimeout));
        return answer.exit == Exit::Ok ? print(answer.result, show) : fail(answer);
    }

    // Progress goes beside the result, and at once: somebody is waiting.
    OnProgress reporter() {
        return [this](const Json& progress) {
            err_ << "holdfast: " << line_of(progress) << std::endl;
        };
    }

    // Something that changes the node and may take its time.
    int change(const Json& request,
               const std::function<void(std::ostream&, const Json&)>& show = show_outcome,
               milliseconds limit = kSwapTimeout) {
        const Answer answer = ask_node(request, timeout(limit), reporter());
        if (answer.exit != Exit::Ok) return fail(answer);
        print(answer.result, show);
        // A roll-back is an answer, not a failure to answer; for a script it is a no all the same.
        const std::string outcome = field(answer.result, "outcome");
        const bool rolled_back = outcome == "rolled-back" || outcome == "rolled_back";
        return static_cast<int>(rolled_back ? Exit::No : Exit::Ok);
    }

    int swap_plugin() {
        Json request{{"op", "swap"}, {"plugin", options_.plugin}};
        if (options_.policy.empty() && options_.binary.empty() && options_.settings.empty() &&
            options_.unset.empty() && !options_.fresh)
            return fail(Exit::Usage,
                        "usage",
                        "swap what? Give --policy, --binary, --set, --unset or --fresh");
        if (!options_.policy.empty()) request["policy"] = options_.policy;
        if (!options_.binary.empty()) {
            // The node has another working directory.
            const auto binary = (around_.working_dir / options_.binary).lexically_normal();
            std::error_code ignored;
            if (!std::filesystem::is_regular_file(binary, ignored))
                return fail(Exit::Usage,
                            "usage",
                            "--binary " + options_.binary +
                                (std::filesystem::is_directory(binary, ignored)
                                     ? " is a directory; name the executable in it"
                                     : ": no such file"));
            request["binary"] = binary.string();
        }
        Json settings = Json::object();
        for (const std::string& setting : options_.settings) {
            const auto equals = setting.find('=');
            const std::string key = setting.substr(0, equals);
            if (equals == std::string::npos || key.empty())
                return fail(Exit::Usage, "usage", "--set " + setting + ": want KEY=VALUE");
            if (settings.contains(key))
                return fail(Exit::Usage, "usage", "--set " + key + " is given twice");
            settings[key] = setting.substr(equals + 1);
        }
        for (const std::string& key : options_.unset)
            if (settings.contains(key))
                return fail(Exit::Usage, "usage", key + " is both --set and --unset");
        if (!settings.empty()) request["settings"] = std::move(settings);
        if (!options_.unset.empty()) request["unset"] = options_.unset;
        if (options_.fresh) request["fresh"] = true;
        return change(request);
    }

    int deploy_module() {
        Json request{{"op", "deploy"}, {"class", options_.class_name}};
        if ((options_.file.empty() ? 0 : 1) + (options_.reset ? 1 : 0) +
                (options_.rollback ? 1 : 0) !=
            1)
            return fail(Exit::Usage,
                        "usage",
                        "deploy what? Give one of MODULE.wasm, --rollback and --reset");
        if (options_.reset) request["reset"] = true;
        if (options_.rollback) request["rollback"] = true;
        if (!options_.file.empty()) {
            // The node has another working directory.
            const auto module = (around_.working_dir / options_.file).lexically_normal();
            std::error_code ignored;
            if (!std::filesystem::is_regular_file(module, ignored))
                return fail(Exit::Usage, "usage", options_.file + ": no such file");
            request["module"] = module.string();
        }
        return change(request, show_outcome, kDeployTimeout);
    }

    int dump() {
        std::error_code ignored;
        if (!std::filesystem::is_directory(data(), ignored))
            return fail(Exit::Unreachable,
                        "unreachable",
                        "there is no data directory " + data().string() +
                            (options_.node.empty() ? "; looked in " + places_tried(around_) : ""));
        const auto made = make_dump(around_, data(), options_.file, timeout(kAskTimeout));
        if (!made && made.error().code == Code::Exists)
            return fail(Exit::Usage, "exists", made.error().message);
        if (!made) return fail(made.error());
        return print(*made, show_outcome);
    }

    int list_actors() {
        Json all{{"actors", Json::array()}, {"more", false}};
        std::string after = options_.after;
        for (;;) {
            Json request{{"op", "actors"}, {"limit", options_.limit}};
            if (!options_.class_name.empty()) request["class"] = options_.class_name;
            if (!after.empty()) request["after"] = after;
            const Answer answer = ask_node(request, timeout(kAskTimeout));
            if (answer.exit != Exit::Ok) return fail(answer);
            if (!options_.all) return print(answer.result, show_actors);
            const Json page = answer.result.is_object()
                                  ? answer.result.value("actors", Json::array())
                                  : Json::array();
            if (page.is_array())
                all["actors"].insert(all["actors"].end(), page.begin(), page.end());
            const std::string last =
                page.is_array() && !page.empty() ? field(page.back(), "unit") : after;
            // A node that says "more" but does not get on would keep us here for ever.
            if (field(answer.result, "more") != "yes" || last == after) break;
            after = last;
        }
        return print(all, show_actors);
    }

    int config_show() {
        if (options_.file.empty() && listens(data()))
            return query({{"op", "config-show"}}, show_config);
        return beside("holdfastd", "--show-config", config_file(around_, options_.file));
    }

    int beside(const std::string& program,
               const std::string& flag,
               const std::filesystem::path& file) {
        std::vector<std::string> arguments{flag, file.string()};
        if (options_.json) arguments.emplace_back("--json");
        const auto said = hear_beside(around_, program, arguments, timeout(kBesideTimeout));
        if (!said) return fail(said.error());
        if (said->code != 0 && options_.json && said->out.empty())
            out_ << failure("invalid", said->err.substr(0, said->err.find_last_not_of('\n') + 1))
                 << '\n';
        out_ << said->out;
        err_ << said->err;
        return said->code;
    }

    // The module is only read here. What compiles and runs parts of it has a jail, which is the node's.
    int build_module() {
        const auto module = (around_.working_dir / options_.file).lexically_normal();
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(module, ignored))
            return fail(Exit::Usage, "usage", options_.file + ": no such file");
        const std::int64_t start_ns = monotonic_ns();
        const auto said = hear_beside(around_,
                                      "holdfast-wasm-build",
                                      {"--inspect", module.string()},
                                      timeout(kBesideTimeout));
        if (!said) return fail(said.error());
        if (said->code != 0) {
            std::string why = said->err.substr(0, said->err.find_last_not_of('\n') + 1);
            if (why.empty())
                why = "holdfast-wasm-build ended with exit code " + std::to_string(said->code);
            return fail(said->code == kInspectUsage ? Exit::Usage : Exit::No, "refused", why);
        }
        const Json facts = Json::parse(said->out, nullptr, false);
        if (!facts.is_object())
            return fail(Exit::No, "io", "holdfast-wasm-build answered no JSON object");
        Json result{{"module", module.string()},
                    {"bytes", std::filesystem::file_size(module, ignored)}};
        for (const auto& [key, value] : facts.items())
            if (key != "ok") result[key] = value;
        result["millis"] = (monotonic_ns() - start_ns) / 1'000'000;
        return print(result, show_fields);
    }

    const Surroundings& around_;
    std::ostream& out_;
    std::ostream& err_;
    Options options_;
    CLI::App* letters_ = nullptr;
    CLI::App cli_{"The operator's command line of a Holdfast node."};
    std::function<int()> action_ = [] { return static_cast<int>(Exit::Usage); };
};

}  // namespace

int run(const std::vector<std::string>& words,
        const Surroundings& around,
        std::ostream& out,
        std::ostream& err) {
    App app(around, out, err);
    return app.run(words);
}

}  // namespace hf::cli
