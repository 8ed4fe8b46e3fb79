// Large bodies as the core sees them: bounded by class and by node, kept while their event may run again, counted until
// nobody needs them.
#include <doctest/doctest.h>

#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

namespace {

constexpr std::uint64_t kMiB = 1U << 20U;

struct BulkRig : Rig {
    explicit BulkRig(Config config = with_room()) : Rig(std::move(config)) {
        hook = [this](const Action& action) {
            const auto* deliver = std::get_if<Deliver>(&action);
            if (deliver != nullptr) held.push_back(*deliver);
            return deliver != nullptr;
        };
    }
    static Config with_room() {
        Config config = small_config();
        config.classes.front().body_bytes_max = 4 * kMiB;
        config.limits.bulk_bytes = 10 * kMiB;
        return config;
    }
    std::uint64_t upload(const std::string& name,
                         std::uint64_t bytes,
                         Time patience = 10 * kSecond) {
        RequestIn request;
        request.from = serving(Kind::Gateway);
        request.req_id = ++last;
        request.class_name = "counter";
        request.name = name;
        request.event = {0, 0, 0, 0};
        request.deadline = now + patience;
        request.attached = std::make_shared<const Attachment>(bytes);
        feed(request);
        return request.req_id;
    }
    void answer(const Deliver& deliver, std::uint64_t large = 0) {
        DeliveredIn event = delivered(deliver);
        if (large != 0) event.reply_attached = std::make_shared<const Attachment>(large);
        feed(event);
    }
    [[nodiscard]] const Bulk& bulk() const { return core.units().bulk(); }
    std::vector<Deliver> held;
    std::uint64_t last = 1'000;
};

}  // namespace

TEST_CASE("a body is counted from its admission to its event's end, and goes to the runtime") {
    BulkRig rig;
    const std::uint64_t id = rig.upload("a", 3 * kMiB);
    REQUIRE(rig.held.size() == 1);
    REQUIRE(rig.held[0].attached != nullptr);
    CHECK(rig.held[0].attached->bytes() == 3 * kMiB);
    CHECK(rig.bulk().bytes() == 3 * kMiB);
    CHECK(rig.bulk().count() == 1);
    rig.answer(rig.held[0]);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    CHECK(rig.bulk().bytes() == 0);
    CHECK(rig.bulk().count() == 0);
}

TEST_CASE("a runtime's death delivers the same body again") {
    BulkRig rig;
    rig.upload("a", kMiB);
    REQUIRE(rig.held.size() == 1);
    const AttachmentRef before = rig.held[0].attached;
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    REQUIRE(rig.held.size() == 2);
    CHECK(rig.held[1].attempt == 2);
    CHECK(rig.held[1].attached == before);
    CHECK(rig.bulk().count() == 1);
    rig.answer(rig.held[1]);
    CHECK(rig.bulk().count() == 0);
}

TEST_CASE("a body above its class's limit is told the limit, above the node's as well") {
    BulkRig rig;
    const std::uint64_t id = rig.upload("a", 4 * kMiB + 1);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::TooLarge);
    CHECK(rig.reply(id)->text.find("body_max = 4194304") != std::string::npos);
    Config config = BulkRig::with_room();
    config.limits.bulk_bytes = kMiB;
    BulkRig small(config);
    const std::uint64_t other = small.upload("a", 2 * kMiB);
    CHECK(small.reply(other)->reason == ReplyReason::TooLarge);
    CHECK(small.reply(other)->text.find("limits.bulk_bytes = 1048576") != std::string::npos);
    CHECK(rig.bulk().count() + small.bulk().count() == 0);
}

TEST_CASE("the node bounds all bodies together, by bytes and by count, and says so") {
    BulkRig rig;
    rig.upload("a", 4 * kMiB);
    rig.upload("b", 4 * kMiB);
    const std::uint64_t refused = rig.upload("c", 3 * kMiB);
    REQUIRE(rig.reply(refused) != nullptr);
    CHECK(rig.reply(refused)->reason == ReplyReason::Busy);
    CHECK(rig.reply(refused)->text.find("limits.bulk_bytes") != std::string::npos);
    CHECK(rig.reply(refused)->retry_after_ms > 0);
    rig.answer(rig.held[0]);
    CHECK(rig.reply(rig.upload("c", 3 * kMiB)) == nullptr);

    BulkRig many;
    for (std::size_t i = 0; i < kBulkBodiesMax; ++i) many.upload("a" + std::to_string(i), 1);
    const std::uint64_t last = many.upload("z", 1);
    REQUIRE(many.reply(last) != nullptr);
    CHECK(many.reply(last)->reason == ReplyReason::Busy);
    CHECK(many.reply(last)->text.find("256 large bodies") != std::string::npos);
}

TEST_CASE("an answer's body is counted until its gateway is done with it") {
    BulkRig rig;
    const std::uint64_t id = rig.upload("a", kMiB);
    rig.answer(rig.held[0], 2 * kMiB);
    REQUIRE(rig.reply(id) != nullptr);
    REQUIRE(rig.reply(id)->attached != nullptr);
    CHECK(rig.reply(id)->attached->bytes() == 2 * kMiB);
    CHECK(rig.bulk().bytes() == 2 * kMiB);
    rig.feed(BodyReleasedIn{rig.serving(Kind::Gateway), id + 1});
    CHECK(rig.bulk().bytes() == 2 * kMiB);
    rig.feed(BodyReleasedIn{rig.serving(Kind::Gateway), id});
    CHECK(rig.bulk().bytes() == 0);
    rig.feed(BodyReleasedIn{rig.serving(Kind::Gateway), id});
    CHECK(rig.bulk().bytes() == 0);
}

TEST_CASE("the end of a gateway is the end of its answers") {
    BulkRig rig;
    rig.upload("a", kMiB);
    rig.answer(rig.held[0], 2 * kMiB);
    rig.upload("b", kMiB);
    CHECK(rig.bulk().bytes() == 3 * kMiB);
    rig.die(rig.serving(Kind::Gateway), false);
    CHECK(rig.bulk().bytes() == kMiB);
    // Its event goes on; the answer finds nobody.
    rig.answer(rig.held[1], 2 * kMiB);
    CHECK(rig.bulk().bytes() == 0);
}

TEST_CASE("an answer for which there is no room undoes its event, and the client may come again") {
    BulkRig rig;
    rig.upload("a", 4 * kMiB);
    rig.upload("b", 4 * kMiB);
    const std::uint64_t id = rig.upload("c", kMiB);
    REQUIRE(rig.held.size() == 3);
    const auto commits = rig.core.stats().commits;
    rig.answer(rig.held[2], 3 * kMiB);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Busy);
    CHECK(rig.reply(id)->text.find("limits.bulk_bytes") != std::string::npos);
    CHECK(rig.core.stats().commits == commits);
    CHECK(rig.bulk().bytes() == 8 * kMiB);
}

TEST_CASE("an answer larger than its class allows undoes its event, and is no lie of the runtime") {
    // While limits change, it may be of other ones.
    BulkRig rig;
    const std::uint64_t id = rig.upload("a", kMiB);
    const Handle runtime = rig.serving(Kind::Runtime);
    const auto commits = rig.core.stats().commits;
    rig.answer(rig.held[0], 5 * kMiB);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::ActorLimit);
    CHECK(rig.reply(id)->text == "limit body_max: 4194304 allowed, 5242880 asked for");
    CHECK(rig.reply(id)->attached == nullptr);
    rig.run_for(5 * kSecond);
    CHECK(rig.serving(Kind::Runtime) == runtime);
    CHECK(rig.core.stats().commits == commits);
    CHECK(rig.bulk().count() == 0);
}

TEST_CASE("an answer that nobody hears needs no room") {
    BulkRig rig;
    rig.upload("a", 4 * kMiB);
    rig.upload("b", 4 * kMiB);
    for (const Mailbox mailbox : {Mailbox::Durable, Mailbox::Buffered}) {
        std::vector<ClassSpec> classes = rig.core.config().classes;
        classes.front().mailbox = mailbox;
        rig.feed(ConfigChanged{rig.core.config().limits, classes});
        RequestIn request;
        request.from = rig.serving(Kind::Gateway);
        request.req_id = ++rig.last;
        request.class_name = "counter";
        request.name = "c";
        FlatWriter flat(request.event);
        flat.field("POST");
        flat.field("/");
        flat.u32(0);
        flat.field("");
        request.later = true;
        const std::size_t before = rig.held.size();
        rig.feed(std::move(request));
        REQUIRE(rig.held.size() == before + 1);
        const auto commits = rig.core.stats().commits;
        rig.answer(rig.held.back(), 3 * kMiB);
        rig.run_for(5 * kSecond);
        CHECK(rig.held.size() == before + 1);
        CHECK(rig.core.stats().commits == commits + 1);
    }
    CHECK(rig.core.stats().buffered_lost == 0);
    CHECK(rig.core.stats().journal_applied == 1);
    CHECK(rig.bulk().bytes() == 8 * kMiB);
}

TEST_CASE("an answer that comes after its deadline gives its body back") {
    BulkRig rig;
    const std::uint64_t id = rig.upload("a", kMiB, kSecond);
    rig.run_for(kSecond + kMs);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Deadline);
    CHECK(rig.bulk().bytes() == kMiB);  // it still runs
    rig.answer(rig.held[0], 2 * kMiB);
    CHECK(rig.bulk().bytes() == 0);
}
