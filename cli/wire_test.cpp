// What may go wrong between the CLI and a node, as the shell sees it.
#include "cli/fake_node.hpp"

using hf::cli::Json;
using namespace hf::cli::test;

TEST_CASE("nobody there is 3: no directory, no socket, a left-over socket, a plain file") {
    TempDir dir;
    CHECK(run(dir, {"--node", (dir.path / "none").string(), "status"}).exit == 3);
    const Ran none = run(dir, {"status", "--json"});
    CHECK(none.exit == 3);
    CHECK(has(none.err, "no node runs there"));
    CHECK(Json::parse(none.out)["error"]["code"] == "unreachable");
    { FakeNode gone(dir.path, answers("")); }
    const Ran left = run(dir, {"status"});
    CHECK(left.exit == 3);
    CHECK(has(left.err, "left behind"));
    fs::remove(dir.path / "run" / "control.sock");
    std::ofstream(dir.path / "run" / "control.sock") << "x";
    CHECK(run(dir, {"status"}).exit == 3);
}

TEST_CASE("a node that hangs up, garbles or floods is 3 and never a crash") {
    const std::string deep(200'000, '[');
    const std::vector<std::pair<std::string, std::string>> answers_and_words{
        {"", "closed the connection"},
        {"{\"ok\":true", "closed the connection"},
        {"{\"progress\":1}\n", "closed the connection"},
        {"hello\n", "not a JSON object"},
        {"\n", "not a JSON object"},
        {"[1]\n", "not a JSON object"},
        {deep + "\n", "not a JSON object"},
        {"{\"ok\":true,\"result\":\"\xff\xfe\"}\n", "not a JSON object"},
        {"{}\n", "neither"},
        {"{\"ok\":1}\n", "neither yes nor"},
        {"{\"ok\":false}\n", "neither yes nor"},
        {"{\"ok\":false,\"error\":\"no\"}\n", "neither yes nor"},
        {"{\"ok\":true,\"result\":\"" + std::string(hf::cli::kLineBytesMax, 'x') + "\"}\n",
         "longer than 1 MiB"},
        {std::string(2 * hf::cli::kLineBytesMax, 'x'), "longer than 1 MiB"},
    };
    for (const auto& [bytes, words] : answers_and_words) {
        TempDir dir;
        FakeNode node(dir.path, answers(bytes));
        const Ran ran = run(dir, {"plugins", "--timeout", "30s"});
        CAPTURE(ran.err);
        CHECK(ran.exit == 3);
        CHECK(has(ran.err, words));
    }
    TempDir dir;
    FakeNode node(dir.path, [](int fd, const std::string&) {
        std::string many;
        for (std::size_t i = 0; i < hf::cli::kProgressLinesMax + 2; ++i)
            many += "{\"progress\":1}\n";
        say(fd, many);
    });
    const Ran ran = run(dir, {"rollback", "placement"});
    CHECK(ran.exit == 3);
    CHECK(has(ran.err, "without end"));
}

TEST_CASE("answers of the wrong shape are shown as far as they go") {
    for (const std::string result :
         {"null",
          "[]",
          "7",
          "\"text\"",
          "{\"plugins\":7}",
          "{\"plugins\":[7,null,[]]}",
          "{\"actors\":{\"a\":1}}",
          "{\"links\":[1,[2],{\"a\":null}],\"values\":[{}]}",
          "{\"plugins\":[{\"instances\":[1,2],\"bad_builds\":7,\"name\":[[[[1]]]]}]}"}) {
        TempDir dir;
        FakeNode node(dir.path, answers("{\"ok\":true,\"result\":" + result + "}\n"));
        for (const std::string command : {"status", "plugins", "actors"})
            CHECK(run(dir, {command}).exit == 0);
        CHECK(run(dir, {"actors", "--all"}).exit == 0);
        CHECK(run(dir, {"config", "show"}).exit == 0);
        CHECK(run(dir, {"rollback", "placement"}).exit == 0);
    }
}

TEST_CASE("a node that does not answer is 4 at the time-out, and the largest answer fits") {
    TempDir dir;
    {
        FakeNode* self = nullptr;
        FakeNode node(dir.path, [&self](int fd, const std::string&) {
            say(fd, "{\"progress\":\"still here\"}\n{\"ok\":");
            self->wait_for_hangup(fd);
        });
        self = &node;
        const Ran ran =
            run(dir, {"swap", "placement", "--policy", "p", "--timeout", "100ms", "--json"});
        CHECK(ran.exit == 4);
        CHECK(Json::parse(ran.out)["error"]["code"] == "timeout");
        CHECK(has(ran.err, "still here"));
    }
    fs::remove(dir.path / "run" / "control.sock");
    const std::string frame = "{\"ok\":true,\"result\":\"\"}\n";
    const std::string largest(hf::cli::kLineBytesMax - frame.size(), 'y');
    FakeNode node(dir.path, answers("{\"ok\":true,\"result\":\"" + largest + "\"}\n"));
    const Ran ran = run(dir, {"status", "--json", "--timeout", "30s"});
    CHECK(ran.exit == 0);
    CHECK(ran.out == "\"" + largest + "\"\n");
}

TEST_CASE("a data directory deeper than a socket address is reached all the same") {
    TempDir dir;
    FakeNode node(dir.path, answers("{\"ok\":true,\"result\":{\"node\":\"deep\"}}\n"));
    const fs::path deep = dir.path / std::string(150, 'd');
    fs::create_directory_symlink(dir.path, deep);
    CHECK(has(run(dir, {"status", "--node", deep.string()}).out, "deep"));
}
