#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/loop/loop.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "abi/base/unique_fd.hpp"

namespace hf::loop {
namespace {

struct Rig {
    Rig() {
        REQUIRE(uv_loop_init(&loop) == 0);
        std::array<int, 2> ends{-1, -1};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
        read.reset(ends[0]);
        write.reset(ends[1]);
    }
    ~Rig() {
        poll.reset();
        uv_run(&loop, UV_RUN_DEFAULT);
        CHECK(uv_loop_close(&loop) == 0);
    }
    void turns(int count) {
        for (int i = 0; i < count; ++i) uv_run(&loop, UV_RUN_NOWAIT);
    }

    uv_loop_t loop{};
    UniqueFd read;
    UniqueFd write;
    std::optional<Poll> poll;
};

}  // namespace

TEST_CASE("what_is_not_read_is_reported_each_turn") {
    Rig rig;
    int calls = 0;
    rig.poll.emplace(&rig.loop, rig.read.get(), [&] { ++calls; });
    rig.turns(3);
    CHECK(calls == 0);
    REQUIRE(::write(rig.write.get(), "x", 1) == 1);
    rig.turns(3);
    CHECK(calls == 3);
}

TEST_CASE("a_writer_that_hung_up_is_reported_once_and_wakes_nobody_again") {
    Rig rig;
    int calls = 0;
    rig.poll.emplace(&rig.loop, rig.read.get(), [&] { ++calls; });
    rig.write.reset();
    rig.turns(100);
    CHECK(calls == 1);
}

TEST_CASE("bytes_of_a_writer_that_hung_up_are_still_reported") {
    Rig rig;
    int reads = 0;
    rig.poll.emplace(&rig.loop, rig.read.get(), [&] {
        char byte = 0;
        if (::read(rig.read.get(), &byte, 1) == 1) ++reads;
    });
    REQUIRE(::write(rig.write.get(), "xyz", 3) == 3);
    rig.write.reset();
    rig.turns(100);
    CHECK(reads == 3);
}

}  // namespace hf::loop
