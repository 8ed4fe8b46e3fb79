// A rate limiter: of what is asked in a window of time only so much is allowed. In C++ with its standard library.
//
//   POST /take?<key>   200 "<left>" while the key has something left, 429 after; the first one opens the key's window
//   PUT /              body "<count> <window in ms>"; 5 in 1000 ms until somebody says otherwise
//   GET /              the open windows, a line "<key> <taken>" each
//
// One alarm closes every window that is over and is set again for the next one. Key "rule" is the rule, "w/<key>" a window.
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace {

using holdfast::Text;

struct Rule {
    std::uint32_t count = 5;
    std::uint32_t window_ms = 1000;
};
struct Window {
    std::int64_t ends_ms = 0;
    std::uint32_t taken = 0;
};

const std::string kWindows = "w/";

Rule rule() {
    return holdfast::kv_get_as<Rule>("rule").value_or(Rule{});
}

}  // namespace

class Limiter : public holdfast::Actor {
public:
    holdfast::Result http(const holdfast::Http& request) {
        if (request.method() == "POST" && request.path() == "/take") return take(request.query());
        if (request.method() == "PUT") return set_rule(request.body());
        if (request.method() == "GET") return show();
        return holdfast::reply_text(404, "POST /take?<key>, PUT /, GET /\n");
    }

    holdfast::Result alarm(const holdfast::Alarm&) {
        const std::int64_t now = holdfast::now_ms();
        std::int64_t next = 0;
        std::vector<std::string> over;
        for (holdfast::Cursor<> each(kWindows); each.next();) {
            Window window;
            if (each.value().size() != sizeof window) continue;
            each.value().copy(reinterpret_cast<char*>(&window), sizeof window);
            if (window.ends_ms <= now)
                over.emplace_back(each.key());
            else if (next == 0 || window.ends_ms < next)
                next = window.ends_ms;
        }
        for (const std::string& key : over) holdfast::kv_delete(key);
        std::printf("%zu windows are over\n", over.size());
        return next == 0 ? 0 : holdfast::alarm_set(next);
    }

private:
    static holdfast::Result take(Text name) {
        if (name.empty() || name.size() > 100)
            return holdfast::reply_text(400, "a key has 1 to 100 bytes\n");
        const Rule rule_now = rule();
        const std::int64_t now = holdfast::now_ms();
        const std::string key = kWindows + std::string(name);
        Window window = holdfast::kv_get_as<Window>(key).value_or(Window{});
        // An alarm may come late; what is over is over by the clock.
        if (window.ends_ms <= now) window = {now + rule_now.window_ms, 0};
        if (window.taken >= rule_now.count) return holdfast::reply_text(429, "come again later\n");
        ++window.taken;
        if (const auto rc = holdfast::kv_put_as(key, window); rc < 0) return rc;
        if (const std::int64_t set = holdfast::alarm_get(); set == 0 || set > window.ends_ms)
            holdfast::alarm_set(window.ends_ms);
        return holdfast::reply_number(200, rule_now.count - window.taken);
    }

    static holdfast::Result set_rule(Text body) {
        Rule wanted;
        const std::string text(body);
        if (std::sscanf(text.c_str(), "%u %u", &wanted.count, &wanted.window_ms) != 2)
            return holdfast::reply_text(400, "the body is <count> <window in ms>\n");
        if (const auto rc = holdfast::kv_put_as("rule", wanted); rc < 0) return rc;
        return holdfast::reply_text(200, "ok\n");
    }

    static holdfast::Result show() {
        std::string out;
        for (holdfast::Cursor<> each(kWindows); each.next();) {
            const auto window = holdfast::kv_get_as<Window>(each.key()).value_or(Window{});
            out += std::string(each.key().substr(kWindows.size())) + " " +
                   std::to_string(window.taken) + "\n";
        }
        return holdfast::reply_text(200, out);
    }
};
HOLDFAST_ACTOR(Limiter)
