// What an unclean stop, another daemon or a stranger may have left where we want to be.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "abi/base/unique_fd.hpp"
#include "agent/control/control.hpp"
#include "agent/control/data_lock.hpp"
#include "agent/control/state_file.hpp"
#include "agent/control/test_directory.hpp"

using namespace hf;
using control::DataLock;
using control::Server;
using control::StateFile;
using control::StoreLock;
using control::test::Directory;
using control::test::read_file;
using control::test::write_file;
using nlohmann::json;

namespace {

// Tries to listen; the failure's code and message, or nothing.
std::optional<Error> try_listen(const std::filesystem::path& path) {
    uv_loop_t loop;
    REQUIRE(::uv_loop_init(&loop) == 0);
    std::optional<Error> out;
    {
        auto server = Server::listen(&loop, path);
        if (!server.ok()) out = server.error();
    }
    ::uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(::uv_loop_close(&loop) == 0);
    return out;
}

// A socket file as a dead daemon leaves it.
void leave_socket(const std::filesystem::path& path) {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0);
}

bool names(const std::optional<Error>& error, const std::filesystem::path& path) {
    return error && error->message.find(path.string()) != std::string::npos;
}

}  // namespace

TEST_CASE("a_socket_nobody_listens_on_is_replaced") {
    const Directory directory;
    const auto path = directory.path() / "control.sock";
    leave_socket(path);
    CHECK(!try_listen(path));
    CHECK(!try_listen(path));
}

TEST_CASE("a_plain_file_symlink_fifo_or_directory_is_named_and_left_alone") {
    const Directory directory;
    const auto path = [&](const char* name) { return directory.path() / name; };
    write_file(path("file"), "mine");
    std::filesystem::create_symlink("nowhere", path("link"));
    REQUIRE(::mkfifo(path("fifo").c_str(), 0600) == 0);
    std::filesystem::create_directory(path("dir"));
    for (const char* name : {"file", "link", "fifo", "dir"}) {
        const auto error = try_listen(path(name));
        CHECK_MESSAGE(names(error, path(name)), name);
        CHECK(error->code == Code::Refused);
    }
    CHECK(read_file(path("file")) == "mine");
    CHECK(std::filesystem::is_symlink(path("link")));
    CHECK(names(try_listen(directory.path() / "absent" / "control.sock"),
                directory.path() / "absent"));
}

TEST_CASE("a_live_listener_is_not_pushed_aside") {
    const Directory directory;
    const auto path = directory.path() / "control.sock";
    uv_loop_t loop;
    REQUIRE(::uv_loop_init(&loop) == 0);
    auto first = Server::listen(&loop, path);
    REQUIRE(first.ok());
    const auto error = try_listen(path);
    REQUIRE(error);
    CHECK(error->code == Code::Exists);
    CHECK(std::filesystem::exists(path));
    // A file that took the place of ours is not ours to remove.
    std::filesystem::remove(path);
    write_file(path, "other");
    first.value().reset();
    ::uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(::uv_loop_close(&loop) == 0);
    CHECK(read_file(path) == "other");
}

TEST_CASE("another_users_socket_is_named_and_left_alone") {
    if (::geteuid() != 0) return;
    const Directory directory;
    const auto path = directory.path() / "control.sock";
    leave_socket(path);
    REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
    CHECK(names(try_listen(path), path));
    CHECK(std::filesystem::exists(path));
}

TEST_CASE("a_path_longer_than_a_socket_address_works") {
    const Directory directory;
    const auto deep = directory.path() / std::string(100, 'a') / std::string(100, 'b');
    std::filesystem::create_directories(deep);
    CHECK(!try_listen(deep / "control.sock"));
    CHECK(std::filesystem::is_empty(deep));
}

TEST_CASE("the_second_daemon_is_refused_by_name_and_the_lock_dies_with_its_holder") {
    const Directory directory;
    REQUIRE(control::prepare_data(directory.path()).ok());
    CHECK(!control::data_lock_holder(directory.path()));
    int pipe[2] = {-1, -1};
    REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto lock = DataLock::acquire(directory.path());
        static_cast<void>(!::write(pipe[1], lock.ok() ? "y" : "n", 1));
        for (;;) ::pause();
    }
    char answer = 0;
    REQUIRE(::read(pipe[0], &answer, 1) == 1);
    CHECK(answer == 'y');
    CHECK(control::data_lock_holder(directory.path()) == child);
    const auto second = DataLock::acquire(directory.path());
    REQUIRE(!second.ok());
    CHECK(second.error().code == Code::Exists);
    CHECK(second.error().message.find("pid " + std::to_string(child)) != std::string::npos);
    CHECK(second.error().message.find(directory.path().string()) != std::string::npos);
    REQUIRE(::kill(child, SIGKILL) == 0);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    ::close(pipe[0]);
    ::close(pipe[1]);
    {
        const auto third = DataLock::acquire(directory.path());
        CHECK(third.ok());
        CHECK(read_file(directory.path() / "holdfastd.lock") == std::to_string(::getpid()) + "\n");
        CHECK(!DataLock::acquire(directory.path()).ok());  // also within one process
    }
    CHECK(DataLock::acquire(directory.path()).ok());
}

TEST_CASE("a_daemon_that_dies_while_it_starts_a_process_leaves_its_locks_to_the_next_daemon") {
    const Directory directory;
    REQUIRE(control::prepare_data(directory.path()).ok());
    const auto store = directory.path() / "store";
    int pipe[2] = {-1, -1};
    REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
    const pid_t daemon = ::fork();
    if (daemon == 0) {
        const auto lock = DataLock::acquire(directory.path());
        const auto also = StoreLock::exclusive(store);
        // The child that is not anything else yet has what its parent has, for as long as that takes.
        if (::fork() == 0) {
            static_cast<void>(!::write(pipe[1], lock.ok() && also.ok() ? "y" : "n", 1));
            ::poll(nullptr, 0, 300);
            ::_exit(0);
        }
        for (;;) ::pause();
    }
    char answer = 0;
    REQUIRE(::read(pipe[0], &answer, 1) == 1);
    CHECK(answer == 'y');
    REQUIRE(::kill(daemon, SIGKILL) == 0);
    REQUIRE(::waitpid(daemon, nullptr, 0) == daemon);
    CHECK(DataLock::acquire(directory.path()).ok());
    CHECK(StoreLock::exclusive(store).ok());
    ::close(pipe[1]);
    CHECK(::read(pipe[0], &answer, 1) == 0);  // it is gone
    ::close(pipe[0]);
}

TEST_CASE("a_store_has_one_exclusive_node_or_many_shared_ones") {
    const Directory directory;
    const auto store = directory.path() / "new" / "store";
    {
        const auto one = StoreLock::exclusive(store);
        REQUIRE(one.ok());
        const auto two = StoreLock::exclusive(store);
        REQUIRE(!two.ok());
        CHECK(two.error().code == Code::Exists);
        CHECK(two.error().message.find(store.string()) != std::string::npos);
        CHECK(two.error().message.find("has it for itself") != std::string::npos);
        const auto shared = StoreLock::shared(store);
        REQUIRE(!shared.ok());
        CHECK(shared.error().message.find("has it for itself") != std::string::npos);
        CHECK(shared.error().message.find("this one has a lease") != std::string::npos);
    }
    const auto a = StoreLock::shared(store);
    const auto b = StoreLock::shared(store);
    CHECK(a.ok());
    CHECK(b.ok());
    const auto alone = StoreLock::exclusive(store);
    REQUIRE(!alone.ok());
    CHECK(alone.error().message.find("in use by nodes with a lease") != std::string::npos);
    CHECK(alone.error().message.find("lease = \"none\"") != std::string::npos);
}

TEST_CASE("locks_on_things_that_are_no_files_are_refused_at_once") {
    const Directory directory;
    const auto lock = directory.path() / "holdfastd.lock";
    const auto refused = [&] {
        const auto result = DataLock::acquire(directory.path());
        return !result.ok() && result.error().message.find(lock.string()) != std::string::npos;
    };
    std::filesystem::create_symlink("nowhere", lock);
    CHECK(refused());
    CHECK(!std::filesystem::exists(directory.path() / "nowhere"));
    std::filesystem::remove(lock);
    REQUIRE(::mkfifo(lock.c_str(), 0600) == 0);
    CHECK(refused());
    std::filesystem::remove(lock);
    std::filesystem::create_directory(lock);
    CHECK(refused());
    std::filesystem::remove(lock);
    write_file(lock, "garbage that is no pid");
    CHECK(DataLock::acquire(directory.path()).ok());
}

TEST_CASE("the_data_directory_is_prepared_or_refused_by_name") {
    const Directory directory;
    const auto data = directory.path() / "a" / "b";
    REQUIRE(control::prepare_data(data).ok());
    REQUIRE(control::prepare_data(data).ok());
    struct stat facts {};
    REQUIRE(::stat((data / "run").c_str(), &facts) == 0);
    CHECK((facts.st_mode & ALLPERMS) == S_IRWXU);
    write_file(directory.path() / "file", "x");
    for (const auto& bad : {directory.path() / "file", directory.path() / "file" / "below"}) {
        const auto result = control::prepare_data(bad);
        REQUIRE(!result.ok());
        CHECK(result.error().message.find(bad.string()) != std::string::npos);
    }
    const auto other = directory.path() / "other";
    std::filesystem::create_directory(other);
    std::filesystem::create_symlink("/tmp", other / "run");
    CHECK(!control::prepare_data(other).ok());
}

TEST_CASE("a_state_file_comes_back_and_the_first_start_has_none") {
    const Directory directory;
    const StateFile file(directory.path() / "brands.json");
    json value = "untouched";
    std::string note;
    CHECK(file.load(value, note).value() == StateFile::Found::Missing);
    CHECK(value == "untouched");
    const json document = {{"builds", {1, 2, "ü"}}};
    REQUIRE(file.save(document).ok());
    CHECK(file.load(value, note).value() == StateFile::Found::Good);
    CHECK(value == document);
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
    struct stat facts {};
    REQUIRE(::stat(file.path().c_str(), &facts) == 0);
    CHECK((facts.st_mode & ALLPERMS) == (S_IRUSR | S_IWUSR));
}

TEST_CASE("garbage_in_a_state_file_is_set_aside_with_a_copy_kept") {
    const Directory directory;
    const StateFile file(directory.path() / "brands.json");
    REQUIRE(file.save({{"builds", {1, 2, 3}}}).ok());
    const std::string whole = read_file(file.path());
    json value;
    std::string note;
    unsigned n = 0;
    for (const std::string& bad : {std::string(),
                                   whole.substr(0, whole.size() / 2),
                                   std::string("\0\xff\x01", 3),
                                   std::string(control::kStateBytesMax + 1, ' '),
                                   std::string(100000, '[')}) {
        write_file(file.path(), bad);
        REQUIRE(file.load(value, note).value() == StateFile::Found::SetAside);
        const auto copy = directory.path() / ("brands.json.bad-" + std::to_string(++n));
        CHECK(read_file(copy) == bad);
        CHECK(note.find(copy.filename().string()) != std::string::npos);
        CHECK(!std::filesystem::exists(file.path()));
    }
    for (int i = 0; i < 10; ++i) {
        write_file(file.path(), "bad " + std::to_string(i));
        REQUIRE(file.load(value, note).value() == StateFile::Found::SetAside);
    }
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) ==
          control::kBadCopiesMax);
    CHECK(read_file(directory.path() / "brands.json.bad-9") == "bad 9");
    // JSON, but not what the caller wrote.
    REQUIRE(file.save({{"other", 1}}).ok());
    const auto judge = [](const json& found) -> Result<void> {
        if (found.contains("builds")) return {};
        return fail(Code::Corrupt, "no builds");
    };
    CHECK(file.load(value, note, judge).value() == StateFile::Found::SetAside);
    CHECK(note.find("no builds") != std::string::npos);
    CHECK(value.is_null());
}

TEST_CASE("a_state_file_that_is_no_file_is_refused_by_name_and_left_alone") {
    const Directory directory;
    const StateFile file(directory.path() / "brands.json");
    json value;
    std::string note;
    const auto refused = [&] {
        const auto result = file.load(value, note);
        return !result.ok() &&
               result.error().message.find(file.path().string()) != std::string::npos;
    };
    std::filesystem::create_symlink("nowhere", file.path());
    CHECK(refused());
    std::filesystem::remove(file.path());
    REQUIRE(::mkfifo(file.path().c_str(), 0600) == 0);
    CHECK(refused());
    std::filesystem::remove(file.path());
    std::filesystem::create_directory(file.path());
    CHECK(refused());
}

TEST_CASE("a_save_that_fails_leaves_the_old_document_whole") {
    const Directory directory;
    const StateFile file(directory.path() / "brands.json");
    REQUIRE(file.save({{"n", 1}}).ok());
    // A leftover of a crash is replaced, a directory in its place is not.
    write_file(directory.path() / "brands.json.tmp", "half");
    REQUIRE(file.save({{"n", 2}}).ok());
    std::filesystem::create_directory(directory.path() / "brands.json.tmp");
    CHECK(!file.save({{"n", 3}}).ok());
    json value;
    std::string note;
    CHECK(file.load(value, note).value() == StateFile::Found::Good);
    CHECK(value["n"] == 2);
    CHECK(!StateFile(directory.path() / "absent" / "x.json").save({}).ok());
}
