// How each function of the guest ABI begins and ends. Rules of the house: enter first, leave last; a pointer outside the
// guest's memory traps like any wild access, before anything is owned; arguments that make no sense answer kBadArgument.
#pragma once

#include <algorithm>
#include <string_view>

#include "plugins/runtime-wasm/engine/instance.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"
#include "plugins/runtime-wasm/host/event.hpp"

namespace hf::wasm {

inline constexpr auto kAbsent = static_cast<std::uint32_t>(-1);
inline constexpr auto kBadArgument = static_cast<std::uint32_t>(-2);
inline constexpr auto kLimit = static_cast<std::uint32_t>(-3);
inline constexpr auto kBusy = static_cast<std::uint32_t>(-4);
inline constexpr auto kNotNow = static_cast<std::uint32_t>(-7);

struct Call {
    Worker& worker;
    Event& event;
};

inline Event& event_of(Worker& worker) {
    return *static_cast<Event*>(worker.instance().event);
}

// An image must not depend on anything but the module.
[[noreturn]] void refuse_in_image(Worker& worker, Event& event, const char* name);

// `name` is used when the guest is not yet serving.
inline Call enter(const char* name) {
    Worker& worker = Worker::enter_host();
    Event& event = event_of(worker);
    if (event.state == nullptr) refuse_in_image(worker, event, name);
    return {worker, event};
}

inline std::uint8_t* checked(Worker& worker, std::uint32_t at, std::uint32_t size) {
    std::uint8_t* bytes = worker.instance().range(at, size);
    if (bytes == nullptr) worker.stop_guest(Stop::Trap, WASM_RT_TRAP_OOB);
    return bytes;
}

inline std::uint32_t leave(const Call& call, std::uint32_t result) {
    call.worker.leave_host();
    return result;
}

inline std::uint32_t refuse(const Call& call, LimitHit hit) {
    call.event.limit = hit;
    return leave(call, kLimit);
}

inline std::string_view text_at(const std::uint8_t* bytes, std::uint32_t size) {
    return as_text({bytes, size});
}

// Fills from the kernel; a limit stops the guest.
void fill_random(const Call& call, std::uint8_t* out, std::uint32_t size);

}  // namespace hf::wasm
