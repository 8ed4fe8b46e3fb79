// Requests accepted for later: in the journal first, applied once and in order, kept until then; with perfect processes around.
#include <doctest/doctest.h>

#include <algorithm>

#include "agent/core/guest_events.hpp"
#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

namespace {

Bytes http() {
    Bytes out;
    FlatWriter flat(out);
    flat.field("POST");
    flat.field("/");
    flat.u32(0);
    flat.field("body");
    return out;
}

std::uint64_t later(Rig& rig, const std::string& name, Time deadline = 0) {
    static std::uint64_t req = 1'000;
    RequestIn request;
    request.from = rig.serving(Kind::Gateway);
    request.req_id = ++req;
    request.class_name = "counter";
    request.name = name;
    request.event = http();
    request.deadline = deadline;
    request.later = true;
    rig.feed(request);
    return req;
}

// Keeps what is asked of the journal, and answers events as `status` says.
struct Held {
    explicit Held(Rig& rig_in) : rig(rig_in) {
        rig.hook = [this](const Action& action) {
            if (const auto* append = std::get_if<JournalAppend>(&action); append && hold) {
                appends.push_back(*append);
                return true;
            }
            if (const auto* deliver = std::get_if<Deliver>(&action)) {
                delivers.push_back(*deliver);
                if (!answer) return true;
                DeliveredIn in = Rig::delivered(*deliver);
                in.status = status;
                if (status != DeliverStatus::Ok) in.changes.clear();
                if (status != DeliverStatus::Ok) in.error = std::string(60'000, 'e');
                rig.feed(in);
                return true;
            }
            return false;
        };
    }
    Rig& rig;
    bool hold = false;
    bool answer = true;
    DeliverStatus status = DeliverStatus::Ok;
    std::vector<JournalAppend> appends;
    std::vector<Deliver> delivers;
};

}  // namespace

TEST_CASE("a client hears 202 when its request is in the journal, not before") {
    Rig rig;
    Held held(rig);
    held.hold = true;
    const auto req = later(rig, "a");
    REQUIRE(held.appends.size() == 1);
    CHECK(rig.reply(req) == nullptr);
    CHECK(held.delivers.empty());
    rig.feed(JournalAppended{held.appends[0].op, Outcome::Applied, ""});
    REQUIRE(rig.reply(req) != nullptr);
    CHECK(rig.reply(req)->status == 202);
    REQUIRE(held.delivers.size() == 1);
    CHECK(held.delivers[0].kind == EventKind::Http);
    // It carries its id.
    const std::string id = message_id_text(message_id("journal/stream", held.appends[0].item.n));
    const auto with_id = with_header(http(), kMessageIdHeader, id);
    REQUIRE(with_id);
    CHECK(held.delivers[0].event == *with_id);
    rig.run_for(kSecond);
    CHECK(rig.all<JournalRemove>().size() == 1);
    CHECK(rig.core.units().journal().size() == 0);
}

TEST_CASE("what the journal refuses did not happen, and what it does not know is 504") {
    Rig rig;
    Held held(rig);
    held.hold = true;
    const auto refused = later(rig, "a");
    const auto unknown = later(rig, "a");
    rig.feed(JournalAppended{held.appends[0].op, Outcome::Refused, "the disk is full"});
    rig.feed(JournalAppended{held.appends[1].op, Outcome::Unknown, "the disk failed"});
    CHECK(rig.reply(refused)->reason == ReplyReason::Busy);
    CHECK(rig.reply(refused)->text == "the disk is full");
    CHECK(rig.reply(unknown)->reason == ReplyReason::Deadline);
    rig.run_for(10 * kSecond);
    CHECK(held.delivers.empty());
    CHECK(rig.core.units().journal().size() == 0);
    // Whoever looks after the node hears of it too.
    const auto notes = rig.all<Note>();
    CHECK(std::count_if(notes.begin(), notes.end(), [](const auto& one) {
              return one.second.room == "journal" &&
                     one.second.text.find("the disk") != std::string::npos;
          }) == 2);
}

TEST_CASE(
    "a journal that is slower than the client's deadline: 504, and the request is applied all the "
    "same") {
    Rig rig;
    Held held(rig);
    held.hold = true;
    const auto req = later(rig, "a", rig.now + kSecond);
    rig.run_for(2 * kSecond);
    CHECK(rig.reply(req)->reason == ReplyReason::Deadline);
    CHECK(rig.replied_at(req) == 2 * kSecond);
    rig.feed(JournalAppended{held.appends[0].op, Outcome::Applied, ""});
    CHECK(held.delivers.size() == 1);
    CHECK(std::count_if(rig.done.begin(), rig.done.end(), [&](const auto& one) {
              const auto* reply = std::get_if<ReplyOut>(&one.second);
              return reply != nullptr && reply->req_id == req;
          }) == 1);
}

TEST_CASE(
    "a handler that fails is tried again after 2 s, and a later request of that actor waits for "
    "it") {
    Rig rig;
    Held held(rig);
    held.status = DeliverStatus::Failed;
    later(rig, "a");
    later(rig, "a");
    later(rig, "b");
    REQUIRE(held.delivers.size() == 2);
    const Bytes first = held.delivers[0].event;
    held.status = DeliverStatus::Ok;
    rig.run_for(2 * kSecond - 1);
    CHECK(held.delivers.size() == 2);
    rig.run_for(1);
    REQUIRE(held.delivers.size() == 5);
    std::vector<Bytes> again{
        held.delivers[2].event, held.delivers[3].event, held.delivers[4].event};
    const auto at = std::find(again.begin(), again.end(), first);
    REQUIRE(at != again.end());
    rig.run_for(kSecond);
    CHECK(rig.core.units().journal().size() == 0);
}

TEST_CASE("what was applied before a crash is not run after it") {
    // The first life: applied and stored, and killed before the journal forgot it.
    Rig first;
    Held held(first);
    later(first, "a");
    REQUIRE(held.delivers.size() == 1);
    const auto appended = first.all<JournalAppend>();
    REQUIRE(appended.size() == 1);
    // The second life finds it in the journal and, in the actor's log, the mark.
    Rig second(small_config(),
               {},
               [&](Rig& rig) {
                   for (const auto& [at, request] : first.all<StoreRequest>()) {
                       if (request.verb != StoreVerb::Put) continue;
                       Bytes body = request.body;
                       if (request.key.find("/log/") != std::string::npos)
                           body = rig.codec.encode(first.codec.decode_entry(body).value());
                       else if (request.key.find("/holds/") != std::string::npos)
                           body = rig.codec.encode(first.codec.decode_hold(body).value());
                       else
                           continue;
                       rig.put(request.key, body);
                   }
               },
               {"stream", 2, {appended[0].second.item}});
    Held after(second);
    second.run_for(kSecond);
    CHECK(std::none_of(after.delivers.begin(), after.delivers.end(), [](const Deliver& deliver) {
        return deliver.kind == EventKind::Http;
    }));
    CHECK(second.core.units().journal().size() == 0);
    CHECK(second.all<JournalRemove>().size() == 1);
}

TEST_CASE("the journal is bounded, for the node and for one actor, and says which bound it is") {
    Config config = small_config();
    config.limits.journal_events = 3;
    config.limits.journal_events_per_actor = 2;
    Rig rig(config);
    Held held(rig);
    held.answer = false;
    later(rig, "a");
    later(rig, "a");
    const auto third = later(rig, "a");
    CHECK(rig.reply(third)->reason == ReplyReason::Busy);
    CHECK(rig.reply(third)->retry_after_ms > 0);
    CHECK(rig.reply(third)->text.find("limits.journal_events_per_actor") != std::string::npos);
    later(rig, "b");
    const auto fifth = later(rig, "c");
    CHECK(rig.reply(fifth)->text.find("limits.journal_events ") != std::string::npos);
    CHECK(rig.core.units().journal().depth("counter/a").waiting == 2);
}

TEST_CASE("the journal's oldest request is known whatever becomes of the others") {
    std::vector<JournalItem> items;
    for (std::uint64_t n = 1; n <= 60; ++n)
        items.push_back({n,
                         "counter",
                         std::string(1, static_cast<char>('a' + n % 7)),
                         1000 + static_cast<std::int64_t>(n * 37 % 61),
                         http()});
    Rig rig(small_config(),
            {},
            [&](Rig& early) {
                // Nothing is applied before the test says so.
                early.hook = [](const Action& action) {
                    return std::holds_alternative<Deliver>(action);
                };
            },
            {"stream", 61, items});
    const auto& journal = rig.core.units().journal();
    std::size_t next = 0;
    while (!items.empty()) {
        std::map<std::string, std::int64_t> fronts;
        for (const JournalItem& item : items) fronts.try_emplace(item.name, item.accepted_ms);
        std::int64_t oldest = INT64_MAX;
        for (const auto& [name, at] : fronts) {
            CHECK(journal.depth("counter/" + name).oldest_ms == at);
            oldest = std::min(oldest, at);
        }
        CHECK(journal.depth().waiting == items.size());
        CHECK(journal.depth().oldest_ms == oldest);
        const auto delivers = rig.all<Deliver>();
        REQUIRE(next < delivers.size());
        const Deliver deliver = delivers[next++].second;
        rig.feed(Rig::delivered(deliver));
        const auto gone = std::find_if(items.begin(), items.end(), [&](const JournalItem& item) {
            return journal.depth("counter/" + item.name).waiting !=
                   static_cast<std::size_t>(
                       std::count_if(items.begin(), items.end(), [&](const JournalItem& other) {
                           return other.name == item.name;
                       }));
        });
        REQUIRE(gone != items.end());
        items.erase(gone);
    }
    CHECK(journal.depth().waiting == 0);
    CHECK(journal.depth().oldest_ms == 0);
}

TEST_CASE(
    "a request given up at a runtime's death lets the next one in, to an actor that was there as "
    "well") {
    Config config = small_config();
    config.restart_intensity = false;
    config.limits.runtime_inflight = 1000;  // none waits for another's answer
    Rig rig(config);
    std::vector<Deliver> open;
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || deliver->event == Bytes{1}) return false;
        open.push_back(*deliver);
        return true;
    };
    // In this order units are looked at when their runtime is gone.
    rig.ask("poison", rig.now + 60 * kSecond);
    rig.ask("next", rig.now + 60 * kSecond);
    later(rig, "poison");
    REQUIRE(open.size() == 1);
    const Bytes poison = open[0].event;
    for (std::size_t i = 1; i < Journal::kOffersMax; ++i) later(rig, "x" + std::to_string(i));
    later(rig, "next");  // in line: as many are open as may be
    for (int death = 0; death < 3; ++death) {
        rig.ask("next", rig.now + 60 * kSecond);  // in memory again, and idle
        const auto last = std::find_if(open.rbegin(), open.rend(), [&](const Deliver& deliver) {
            return deliver.event == poison;
        });
        REQUIRE(last != open.rend());
        rig.die(last->to, true, last->op);
        rig.run_for(kMs);
    }
    CHECK(rig.core.stats().poisoned == 1);
    std::set<Bytes> events;
    for (const Deliver& deliver : open) events.insert(deliver.event);
    CHECK(events.size() == Journal::kOffersMax + 1);
}

TEST_CASE("a journal whose disk is full is asked again every 10 s, however much is applied") {
    Rig rig;
    std::size_t asked = 0;
    bool full = true;
    rig.hook = [&](const Action& action) {
        const auto* remove = std::get_if<JournalRemove>(&action);
        if (remove == nullptr || !full) return false;
        ++asked;
        rig.feed(JournalRemoved{remove->op, false});
        return true;
    };
    for (int i = 0; i < 300; ++i) later(rig, "a" + std::to_string(i));
    CHECK(asked == 1);
    rig.run_for(25 * kSecond);
    CHECK(asked == 3);
    full = false;
    rig.run_for(10 * kSecond);
    const std::size_t asks = rig.all<JournalRemove>().size();
    CHECK(asks == 4);
    CHECK(rig.all<JournalRemove>().back().second.numbers.size() == 300);
    rig.run_for(60 * kSecond);
    CHECK(rig.all<JournalRemove>().size() == asks);
}

TEST_CASE("a request whose handler fails for ever is put aside, with what it was") {
    Rig rig;
    Held held(rig);
    held.status = DeliverStatus::Failed;
    later(rig, "a");
    rig.run_for(3 * 3600 * kSecond);
    CHECK(held.delivers.size() == 20);
    const auto buried = rig.all<JournalBury>();
    REQUIRE(buried.size() == 1);
    CHECK(buried[0].second.letter.target == "counter/a");
    CHECK(buried[0].second.letter.payload == held.delivers[0].event);
    CHECK(buried[0].second.letter.why.size() == 1024);  // whatever the runtime said
    CHECK(rig.core.units().journal().size() == 0);
}

TEST_CASE("a request for a class that is not deployed any more is kept") {
    JournalItem item{1, "gone", "a", 5, http()};
    Rig rig(small_config(), {}, {}, {"stream", 2, {item}});
    rig.run_for(3600 * kSecond);
    CHECK(rig.core.units().journal().size() == 1);
    CHECK(rig.all<JournalRemove>().empty());
}

TEST_CASE(
    "mailbox = buffered accepts in memory; volatile accepts nothing for later and runs nothing "
    "again") {
    Config config = small_config();
    SUBCASE("buffered") {
        config.classes[0].mailbox = Mailbox::Buffered;
        Rig rig(config);
        Held held(rig);
        held.answer = false;
        const auto req = later(rig, "a");
        REQUIRE(rig.reply(req) != nullptr);
        CHECK(rig.reply(req)->status == 202);
        CHECK(rig.all<JournalAppend>().empty());
        CHECK(held.delivers.size() == 1);
    }
    SUBCASE("volatile") {
        config.classes[0].mailbox = Mailbox::Volatile;
        Rig rig(config);
        Held held(rig);
        held.answer = false;
        const auto req = later(rig, "a", rig.now + 60 * kSecond);
        CHECK(rig.reply(req) == nullptr);
        REQUIRE(held.delivers.size() == 1);
        rig.die(rig.serving(Kind::Runtime), false);
        rig.run_for(5 * kSecond);
        REQUIRE(rig.reply(req) != nullptr);
        CHECK(rig.reply(req)->reason == ReplyReason::Deadline);
        CHECK(held.delivers.size() == 1);
    }
}

TEST_CASE("a node that stops answers what is on its way into the journal, and takes nothing more") {
    Rig rig;
    Held held(rig);
    held.hold = true;
    const auto before = later(rig, "a");
    rig.feed(StopNode{"test"});
    const auto after = later(rig, "a");
    CHECK(rig.reply(after)->reason == ReplyReason::Unavailable);
    CHECK(rig.all<ExitNode>().empty());
    rig.feed(JournalAppended{held.appends[0].op, Outcome::Applied, ""});
    CHECK(rig.reply(before)->status == 202);
    rig.run_for(10 * kSecond);
    CHECK(rig.all<ExitNode>().size() == 1);
    CHECK(held.delivers.empty());  // it is in the journal for the next start
}
