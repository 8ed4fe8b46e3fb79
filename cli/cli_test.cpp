// The whole command line against a real unix socket: what it asks, prints and answers to the shell.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "cli/fake_node.hpp"
#include "cli/text.hpp"

using hf::cli::Json;
using namespace hf::cli::test;

TEST_CASE("status is printed for people and passed on whole as JSON") {
    TempDir dir;
    const std::string result =
        R"({"node":"n1","version":"0.1.0","role":"wasmkeep","store":"storage-local","ready":true,"uptime_ms":192000,)"
        R"("policies":{"placement":"rendezvous","drain":"paced"},"missing_walls":["landlock"],"accepted":7,"answered":6,)"
        R"("links":[{"name":"gateway/0","queued":0},{"name":"runtime/1","extra":5}],"new_field":[1,2]})";
    FakeNode node(dir.path, answers(R"({"ok":true,"result":)" + result + "}\n"));
    const Ran text = run(dir, {"status"});
    CHECK(text.exit == 0);
    CHECK(text.err.empty());
    CHECK(has(text.out, "node             n1\n"));
    CHECK(has(text.out, "up               3m 12s\n"));
    CHECK(has(text.out, "policies         placement rendezvous, drain paced\n"));
    CHECK(has(text.out, "missing walls\n  landlock\n"));
    CHECK(has(text.out, "units            -\n"));
    CHECK(has(text.out, "gateway/0       0      -\n"));
    CHECK(has(text.out, "runtime/1       -      5\n"));
    const Ran json = run(dir, {"status", "--json"});
    CHECK(json.exit == 0);
    CHECK(json.out == result + "\n");
    CHECK(run(dir, {"--json", "status"}).out == json.out);
    CHECK(node.requests().front() == Json{{"op", "status"}});
}

TEST_CASE("cluster status tells each node and what this one makes of it") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(
            R"({"ok":true,"result":{"node":"n1","lease":"10s","lease_left_ms":8100,)"
            R"("drain":{"state":"draining","actors":12,"alarms":1,"requests":0,"under_way":4},"nodes":[)"
            R"({"id":"n1","self":true,"address":"10.0.0.1:80","state":"serving","incarnation":3,"ttl_ms":10000,"renewed_ms":900,"view":"alive"},)"
            R"({"id":"n2","self":false,"address":"10.0.0.2:80","state":"serving","incarnation":7,"ttl_ms":10000,"renewed_ms":12000,"view":"silent"},)"
            R"({"id":"n3","self":false,"view":"unreadable"}]}})"
            "\n"));
    const Ran ran = run(dir, {"cluster", "status"});
    CHECK(ran.exit == 0);
    CHECK(node.requests().front() == Json{{"op", "cluster"}});
    CHECK(has(ran.out, "NODE"));
    CHECK(has(ran.out, "10.0.0.1:80"));
    CHECK(has(ran.out, "this node\n"));
    CHECK(has(ran.out, "12s ago"));
    CHECK(has(ran.out, "silent\n"));
    CHECK(has(ran.out, "unreadable\n"));
    CHECK(has(ran.out, "lease of this node: 10s, 8s left\n"));
    CHECK(has(ran.out, "this node is draining: left are 12 actors (4 on their way), 1 alarms"));
    CHECK(run(dir, {"cluster"}).exit == 2);

    TempDir other;
    FakeNode alone(other.path,
                   answers(R"({"ok":true,"result":{"node":"n1","lease":"none","nodes":[]}})"
                           "\n"));
    CHECK(has(run(other, {"cluster", "status"}).out, "has its store for itself"));
}

TEST_CASE("plugins shows instances, last exits and bad builds") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(
            R"({"ok":true,"result":{"plugins":[)"
            R"({"name":"placement","kind":"placement","use":"scheduler","build":"735c1f20","policy":"rendezvous","settings":{"fill":"100"},"generation":3,"pid":41,"state":"serving","restarts":2,)"
            R"~("last_exit":"killed by signal 11","last_exit_build":"x/crash (build ab12)","reason":"","bad_builds":[{"build":"x/crash (build ab12, no settings)","why":"stalled"}],)~"
            R"("instances":[{"index":0,"generation":3,"pid":41,"state":"serving","restarts":2,"resident":0,"uptime_ms":950}]},)"
            R"({"name":"runtime","kind":"runtime","use":"runtime-wasm","policy":null,"state":"serving",)"
            R"("instances":[{"index":0,"generation":4,"pid":51,"state":"serving","resident":12},{"index":1,"generation":5,"pid":52,"state":"failed"}]}],)"
            R"~("remembered_bad_builds":[{"identity":"ab12|crash","plugin":"placement","build":"x/crash (build ab12, no settings)","why":"stalled"},)~"
            R"~({"identity":"cd34|slow","plugin":"drain","build":"y/slow (build cd34, no settings)","why":"lied"}]}})~"
            "\n"));
    const Ran ran = run(dir, {"plugins"});
    CHECK(ran.exit == 0);
    CHECK(has(ran.out,
              "placement    scheduler     735c1f20  rendezvous  serving    3   41         2      "
              "0  950ms\n"));
    CHECK(has(ran.out,
              "runtime      runtime-wasm  -         -           serving                   -\n"));
    CHECK(has(ran.out,
              "  runtime/1                                      failed     5   52         -      "
              "-  -\n"));
    CHECK(has(ran.out, "placement  settings: fill=100\n"));
    CHECK(has(ran.out, "placement  last exit of x/crash (build ab12): killed by signal 11\n"));
    CHECK(
        has(ran.out,
            "placement  not chosen again by itself: x/crash (build ab12, no settings): stalled\n"));
    CHECK(has(ran.out, "bad build  y/slow (build cd34, no settings): lied\n"));
    CHECK(ran.out.find("bad build  x/crash") == std::string::npos);
}

TEST_CASE("names cannot move the terminal's cursor") {
    TempDir dir;
    FakeNode node(dir.path,
                  answers("{\"ok\":true,\"result\":{\"actors\":[{\"class\":\"c\",\"name\":"
                          "\"a\\u001b[2Jb\\u009bm\\n\"}]}}\n"));
    const Ran ran = run(dir, {"actors"});
    CHECK(ran.exit == 0);
    CHECK(has(ran.out, "a\\x1b[2Jb\\x9bm\\x0a"));
    CHECK_FALSE(has(ran.out, "\x1b"));
}

TEST_CASE("an actor of another node says where it is") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(
            R"({"ok":true,"result":{"actors":[{"class":"c","name":"a","state":"elsewhere","node":"n2"},)"
            R"({"class":"c","name":"b","state":"resident","node":"n1"}],"more":false}})"
            "\n"));
    const Ran ran = run(dir, {"actors"});
    CHECK(has(ran.out, "at n2"));
    CHECK(has(ran.out, "resident"));
}

TEST_CASE("actors pages by unit and --all ends even if the node always says more") {
    TempDir dir;
    FakeNode node(dir.path, [](int fd, const std::string& request) {
        const bool second = request.find("actor/t/c/2") != std::string::npos;
        say(fd,
            second
                ? R"({"ok":true,"result":{"actors":[{"unit":"actor/t/c/3","name":"three"}],"more":false}})"
                  "\n"
                : R"({"ok":true,"result":{"actors":[{"unit":"actor/t/c/1","name":"one"},{"unit":"actor/t/c/2","name":"two"}],"more":true}})"
                  "\n");
    });
    const Ran page = run(dir, {"actors", "--class", "c", "--limit", "2"});
    CHECK(has(page.out, "more: --after actor/t/c/2, or --all"));
    CHECK(node.requests()[0] == Json{{"op", "actors"}, {"limit", 2}, {"class", "c"}});
    const Ran all = run(dir, {"actors", "--all", "--json"});
    CHECK(all.exit == 0);
    CHECK(Json::parse(all.out)["actors"].size() == 3);
    CHECK(node.requests().size() == 3);
    CHECK(node.requests()[2]["after"] == "actor/t/c/2");
    CHECK(run(dir, {"actors", "--limit", "0"}).exit == 2);

    TempDir other;
    FakeNode liar(other.path,
                  answers(R"({"ok":true,"result":{"actors":[{"unit":"u"}],"more":true}})"
                          "\n"));
    CHECK(run(other, {"actors", "--all"}).exit == 0);
    CHECK(liar.requests().size() == 2);
}

TEST_CASE("swap sends what was said, shows progress and ends with the node's verdict") {
    TempDir dir;
    program(dir.path / "my policy", "x");
    FakeNode node(dir.path, [](int fd, const std::string& request) {
        say(fd,
            "{\"progress\":\"shadow: 64 "
            "answers\"}\n{\"progress\":{\"stage\":\"canary\",\"percent\":10}}\n");
        const bool bad = request.find("crash") != std::string::npos;
        say(fd,
            bad ? R"({"ok":true,"result":{"outcome":"rolled-back","reason":"it died: signal 11"}})"
                  "\n"
                : R"({"ok":true,"result":{"outcome":"full","generation":4}})"
                  "\n");
    });
    const Ran full = run(dir,
                         {"swap",
                          "placement",
                          "--policy",
                          "least-loaded",
                          "--binary",
                          "my policy",
                          "--set",
                          "a=b=c",
                          "--set",
                          "d="});
    CHECK(full.exit == 0);
    CHECK(full.out == "outcome     full\ngeneration  4\n");
    CHECK(full.err == "holdfast: shadow: 64 answers\nholdfast: stage canary, percent 10\n");
    CHECK(node.requests()[0] == Json{{"op", "swap"},
                                     {"plugin", "placement"},
                                     {"policy", "least-loaded"},
                                     {"binary", (dir.path / "my policy").string()},
                                     {"settings", {{"a", "b=c"}, {"d", ""}}}});
    const Ran less = run(dir, {"swap", "placement", "--fresh", "--unset", "a", "--unset", "b"});
    CHECK(less.exit == 0);
    CHECK(node.requests()[1] ==
          Json{{"op", "swap"}, {"plugin", "placement"}, {"unset", {"a", "b"}}, {"fresh", true}});
    const Ran back = run(dir, {"swap", "placement", "--policy", "crash"});
    CHECK(back.exit == 1);
    CHECK(has(back.out, "rolled-back"));
    CHECK(run(dir, {"rollback", "placement"}).exit == 0);
    CHECK(run(dir, {"plugin", "reset", "runtime"}).exit == 0);
    CHECK(node.requests()[3] == Json{{"op", "rollback"}, {"plugin", "placement"}});
    CHECK(node.requests()[4] == Json{{"op", "reset"}, {"plugin", "runtime"}});
    run(dir, {"cluster", "drain", "n2"});
    run(dir, {"cluster", "undrain", "n2"});
    CHECK(node.requests()[5] == Json{{"op", "drain"}, {"node", "n2"}});
    CHECK(node.requests()[6] == Json{{"op", "undrain"}, {"node", "n2"}});
}

TEST_CASE("deploy names the module as the node can find it, and passes the node's verdict on") {
    TempDir dir;
    const std::string module = (dir.path / "m.wasm").string();
    std::ofstream(module) << "a module";
    FakeNode node(dir.path, [](int fd, const std::string& request) {
        const bool good = request.find("rollback") == std::string::npos;
        const std::string said =
            good ? R"({"progress":"compiling"})"
                   "\n"
                   R"({"ok":true,"result":{"text":"counter runs module 12"}})"
                   "\n"
                 : R"({"ok":false,"error":{"code":"refused","message":"stays at module 12"}})"
                   "\n";
        CHECK(::write(fd, said.data(), said.size()) == static_cast<ssize_t>(said.size()));
    });
    const Ran good = run(dir, {"deploy", "counter", module});
    CHECK(good.exit == 0);
    CHECK(has(good.out, "counter runs module 12\n"));
    CHECK(has(good.err, "holdfast: compiling\n"));
    CHECK(node.requests()[0] == Json{{"op", "deploy"}, {"class", "counter"}, {"module", module}});
    const Ran bad = run(dir, {"deploy", "counter", "--rollback"});
    CHECK(bad.exit == 1);
    CHECK(has(bad.err, "stays at module 12"));
    CHECK(node.requests()[1] == Json{{"op", "deploy"}, {"class", "counter"}, {"rollback", true}});
}

TEST_CASE("a reload is a table of what changed") {
    TempDir dir;
    FakeNode node(dir.path,
                  answers(R"({"ok":true,"result":{"text":"changed: x","changed":[)"
                          R"({"key":"limits.mailbox_events","old":"128","new":"256"}]}})"
                          "\n"));
    const Ran ran = run(dir, {"config", "reload"});
    CHECK(ran.exit == 0);
    CHECK(has(ran.out, "limits.mailbox_events"));
    CHECK(has(ran.out, "256"));
    CHECK(node.requests()[0] == Json{{"op", "config-reload"}});
}

TEST_CASE("a wrong command line is 2, asks nobody, and names what is wrong") {
    TempDir dir;
    FakeNode node(dir.path, answers("{\"ok\":true}\n"));
    const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
        {{}, "subcommand"},
        {{"stauts"}, "no such command: stauts; did you mean 'status'? (see holdfast --help)"},
        {{"frobnicate"}, "there is status, plugins, cluster, actors, swap"},
        {{"plugin", "rest"}, "no such command: plugin rest; did you mean 'reset'?"},
        {{"status", "--jsn"}, "--jsn"},
        {{"status", "--timeout", "0"}, "--timeout"},
        {{"status", "--timeout", "61m"}, "--timeout"},
        {{"swap"}, "plugin is required (see holdfast swap --help)"},
        {{"swap", "placement"}, "swap what?"},
        {{"swap", "placement", "--set", "x"}, "KEY=VALUE"},
        {{"swap", "placement", "--set", "=x"}, "KEY=VALUE"},
        {{"swap", "placement", "--set", "x=1", "--set", "x=2"}, "twice"},
        {{"swap", "placement", "--binary", "nowhere"}, "no such file"},
        {{"swap", "placement", "--binary", "."}, "is a directory"},
        {{"swap", "placement", "--set", "x=1", "--unset", "x"}, "both --set and --unset"},
        {{"swap", "placement", "--unst", "x"}, "(see holdfast swap --help)"},
        {{"rollback"}, "plugin"},
        {{"cluster", "drain"}, "node is required"},
        {{"plugin", "reset"}, "plugin"},
        {{"build"}, "module"},
        {{"deploy"}, "class is required"},
        {{"deploy", "counter"}, "deploy what?"},
        {{"deploy", "counter", "x.wasm", "--reset"}, "one of MODULE.wasm, --rollback and --reset"},
        {{"deploy", "counter", "nowhere.wasm"}, "no such file"},
    };
    for (const auto& [words, named] : wrong) {
        const Ran ran = run(dir, words);
        CAPTURE(ran.err);
        CHECK(ran.exit == 2);
        CHECK(ran.out.empty());
        CHECK(has(ran.err, named));
    }
    CHECK(node.requests().empty());
    const Ran json = run(dir, {"statsu", "--json"});
    CHECK(json.exit == 2);
    CHECK(Json::parse(json.out)["error"]["code"] == "usage");
}

TEST_CASE("every command's help has an example and ends with 0") {
    TempDir dir;
    const std::vector<std::vector<std::string>> commands{{"status"},
                                                         {"plugins"},
                                                         {"actors"},
                                                         {"swap"},
                                                         {"rollback"},
                                                         {"plugin", "reset"},
                                                         {"config", "check"},
                                                         {"config", "show"},
                                                         {"config", "reload"},
                                                         {"deploy"},
                                                         {"dump"},
                                                         {"build"}};
    for (auto words : commands) {
        words.emplace_back("--help");
        const Ran ran = run(dir, words);
        CHECK(ran.exit == 0);
        CHECK(has(ran.out, "Example:\n  holdfast " + words.front()));
    }
    CHECK(has(run(dir, {"--help"}).out, "Exit codes: 0 done"));
    CHECK(has(run(dir, {"--version"}).out, "holdfast 0."));
}

TEST_CASE("the node's no is 1, with its code and sentence") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(R"({"ok":false,"error":{"code":"not_found","message":"no policy \"x\"\u001b"}})"
                "\n"));
    const Ran ran = run(dir, {"swap", "placement", "--policy", "x", "--json"});
    CHECK(ran.exit == 1);
    CHECK(ran.err == "holdfast: no policy \"x\"\\x1b\n");
    CHECK(Json::parse(ran.out)["error"]["code"] == "not_found");
}

TEST_CASE("which node: --node, the variable, the source tree with a live node, the system's") {
    TempDir dir;
    hf::cli::Surroundings around;
    around.system_data = "/sys-data";
    around.executable_dir = dir.path / "build" / "bin";
    fs::create_directories(around.executable_dir);
    CHECK(hf::cli::data_directory(around, "/x") == "/x");
    CHECK(hf::cli::data_directory(around, "") == "/sys-data");
    FakeNode node(dir.path / "data", answers(""));
    CHECK(hf::cli::data_directory(around, "") ==
          "/sys-data");  // no source tree: there is no `dev` in it
    program(dir.path / "dev", "#!/bin/sh\n");
    CHECK(hf::cli::data_directory(around, "") == dir.path / "data");
    around.data_variable = "/from-variable";
    CHECK(hf::cli::data_directory(around, "") == "/from-variable");
    CHECK(hf::cli::data_directory(around, "/x") == "/x");
}

TEST_CASE("who finds no node is told where it was looked for") {
    TempDir dir;
    hf::cli::Surroundings around;
    around.executable_dir = dir.path / "build" / "bin";
    around.system_data = dir.path / "system";
    const auto said = [&](const std::vector<std::string>& words) {
        std::ostringstream out;
        std::ostringstream err;
        CHECK(hf::cli::run(words, around, out, err) == 3);
        return err.str();
    };
    program(dir.path / "dev", "#!/bin/sh\n");
    fs::create_directories(around.executable_dir);
    const std::string looked = said({"status"});
    CAPTURE(looked);
    CHECK(has(looked, (dir.path / "data").string() + " (./dev run) and "));
    CHECK(has(looked, around.system_data.string()));
    CHECK(has(looked, "HOLDFAST_DATA is not set"));
    around.data_variable = (dir.path / "mine").string();
    CHECK(has(said({"status"}), "looked in " + *around.data_variable + " (HOLDFAST_DATA)"));
    CHECK_FALSE(has(said({"status", "--node", dir.path.string()}), "looked in"));
}

TEST_CASE("config check and show run the program beside us and pass its exit code on") {
    TempDir dir;
    const Ran missing = run(dir, {"config", "check", "a.toml"});
    CHECK(missing.exit == 2);
    CHECK(has(missing.err, "holdfastd is not beside"));
    const std::string recorder =
        "#!/bin/sh\nprintf '%s|' \"$@\" > " + (dir.path / "args").string() + "\nexit ";
    program(dir.path / "bin" / "holdfastd", recorder + "2\n");
    CHECK(run(dir, {"config", "check", "dir with ü/a.toml", "--json"}).exit == 2);
    CHECK(content(dir.path / "args") == "--check-config|dir with ü/a.toml|--json|");
    CHECK(run(dir, {"config", "check"}).exit == 2);
    CHECK(content(dir.path / "args") ==
          "--check-config|" + (dir.path / "system.toml").string() + "|");
    std::ofstream(dir.path / "agent.toml") << "";
    CHECK(run(dir, {"config", "show"}).exit == 2);
    CHECK(content(dir.path / "args") ==
          "--show-config|" + (dir.path / "agent.toml").string() + "|");
    program(dir.path / "bin" / "holdfastd", "#!/bin/sh\necho \"$2:1:1: bad\" >&2\nexit 2\n");
    const Ran bad = run(dir, {"config", "check", "a.toml", "--json"});
    CHECK(bad.exit == 2);
    CHECK(bad.err == "a.toml:1:1: bad\n");
    CHECK(Json::parse(bad.out)["error"]["message"] == "a.toml:1:1: bad");
    CHECK(run(dir, {"config", "check", "a.toml"}).out.empty());
    program(dir.path / "bin" / "holdfastd", "#!/bin/sh\nkill -SEGV $$\n");
    const Ran killed = run(dir, {"config", "check", "a.toml"});
    CHECK(killed.exit == 1);
    CHECK(has(killed.err, "signal 11"));
}

TEST_CASE("build tells what the module is, or why it is refused") {
    TempDir dir;
    CHECK(run(dir, {"build", "m.wasm"}).exit == 2);
    std::ofstream(dir.path / "m.wasm") << "12345";
    const Ran missing = run(dir, {"build", "m.wasm"});
    CHECK(missing.exit == 2);
    CHECK(has(missing.err, "holdfast-wasm-build is not beside"));
    const auto tool = dir.path / "bin" / "holdfast-wasm-build";
    program(tool,
            "#!/bin/sh\nprintf '%s|' \"$@\" > " + (dir.path / "args").string() +
                "\necho '{\"ok\":true,\"memory_pages\":2,\"imports\":[\"hf.get\",\"hf.put\"]}'\n");
    const Ran good = run(dir, {"build", "m.wasm"});
    CHECK(good.exit == 0);
    CHECK(content(dir.path / "args") == "--inspect|" + (dir.path / "m.wasm").string() + "|");
    CHECK(has(good.out, "bytes         5\n"));
    CHECK(has(good.out, "imports       hf.get, hf.put\n"));
    CHECK(Json::parse(run(dir, {"build", "m.wasm", "--json"}).out)["memory_pages"] == 2);

    program(tool, "#!/bin/sh\necho 'module refused: it imports env.exit' >&2\nexit 3\n");
    const Ran refused = run(dir, {"build", "m.wasm", "--json"});
    CHECK(refused.exit == 1);
    CHECK(Json::parse(refused.out)["error"]["message"] == "module refused: it imports env.exit");
    program(tool, "#!/bin/sh\nexit 2\n");
    CHECK(run(dir, {"build", "m.wasm"}).exit == 2);
    program(tool, "#!/bin/sh\nhead -c 3000000 /dev/zero\n");
    CHECK(run(dir, {"build", "m.wasm"}).exit == 1);
    program(tool, "#!/bin/sh\nkill -SEGV $$\n");
    CHECK(has(run(dir, {"build", "m.wasm"}).err, "signal 11"));
    program(tool, "#!/bin/sh\nexec sleep 1000\n");
    CHECK(run(dir, {"build", "m.wasm", "--timeout", "100ms"}).exit == 4);
}

TEST_CASE("config show without a file asks the running node") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(
            R"({"ok":true,"result":{"file":"/etc/holdfast/agent.toml","values":[{"table":"node","key":"id","value":"n1","origin":"file","line":2}]}})"
            "\n"));
    const Ran ran = run(dir, {"config", "show"});
    CHECK(ran.exit == 0);
    CHECK(ran.out ==
          "# /etc/holdfast/agent.toml\nKEY      VALUE  ORIGIN\nnode.id  n1     file:2\n");
    CHECK(node.requests().front()["op"] == "config-show");
}

TEST_CASE("durations") {
    using hf::cli::parse_duration;
    using std::chrono::milliseconds;
    CHECK(parse_duration("250ms") == milliseconds(250));
    CHECK(parse_duration("5") == milliseconds(5000));
    CHECK(parse_duration("2m") == milliseconds(120'000));
    CHECK(parse_duration("60m") == milliseconds(3'600'000));
    for (const std::string bad :
         {"", "0", "-1s", "1.5s", "5 s", "5S", "1h", "61m", "99999999999999999999s", "s"})
        CHECK_FALSE(parse_duration(bad));
    const Json times{{"a", 999},
                     {"b", 59'999},
                     {"c", 3'599'000},
                     {"d", 86'399'000},
                     {"e", 90'000'000},
                     {"f", "x"},
                     {"g", -1}};
    CHECK(hf::cli::duration_field(times, "a") == "999ms");
    CHECK(hf::cli::duration_field(times, "b") == "59s");
    CHECK(hf::cli::duration_field(times, "c") == "59m 59s");
    CHECK(hf::cli::duration_field(times, "d") == "23h 59m");
    CHECK(hf::cli::duration_field(times, "e") == "1d 1h");
    CHECK(hf::cli::duration_field(times, "f") == "-");
    CHECK(hf::cli::duration_field(times, "g") == "-");
}
