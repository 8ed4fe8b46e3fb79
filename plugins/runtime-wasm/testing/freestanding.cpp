// An actor in C++ without a line of any library's code: its headers alone.
#define HF_ACTOR_IMPLEMENTATION
#define HF_ACTOR_NO_LIBC
#include "holdfast_actor.hpp"

namespace {

constexpr holdfast::Text kPrefix = "item/";

}  // namespace

class Shelf : public holdfast::Actor {
public:
    holdfast::Result http(const holdfast::Http& request) {
        if (request.method() == "PUT") return holdfast::kv_put(request.path(), request.body());
        std::uint32_t found = 0;
        for (holdfast::Cursor<> each(kPrefix); each.next();)
            if (each.key().substr(kPrefix.size()).find(request.query()) != holdfast::Text::npos)
                ++found;
        return holdfast::reply_number(request.header("accept") ? 200 : 203, found);
    }
    holdfast::Result call(const holdfast::Call& call) {
        holdfast::Reader reader(call.body);
        const holdfast::Text target = reader.field();
        const std::uint64_t amount = reader.u64();
        if (!reader.ok() || !reader.done()) return HF_E_ARGUMENT;
        const auto handle = holdfast::call(target, call.method, call.caller, 100);
        char answer[64];
        const auto len = holdfast::result_read(handle, answer, sizeof answer);
        if (len < 0) return len;
        holdfast::kv_put_as("amount",
                            holdfast::kv_get_as<std::uint64_t>("amount").value_or(0) + amount);
        return holdfast::answer({answer, len < 64 ? static_cast<std::size_t>(len) : sizeof answer});
    }
    holdfast::Result socket_message(const holdfast::SocketMessage& message) {
        return message.binary ? holdfast::socket_close(message.connection, 1003)
                              : holdfast::socket_text(message.connection, message.data);
    }
    holdfast::Result stop(const holdfast::Stop& stop) {
        return stop.reason == HF_STOP_DRAIN ? holdfast::alarm_set(stop.deadline_ms) : 0;
    }
};
HOLDFAST_ACTOR(Shelf)
HF_WANT_STOP
