// The part of wasi_snapshot_preview1 that asks the host anything; the rest are constants that the shim answers. Its own
// error numbers, its own layout of structs: see wasi/api.h of any wasi-libc.
#include <cstring>

#include "plugins/runtime-wasm/host/entry.hpp"

namespace hf::wasm {

namespace {

constexpr std::uint32_t kSuccess = 0;
constexpr std::uint32_t kErrBadDescriptor = 8;
constexpr std::uint32_t kErrInvalid = 28;

// As many as a C library hands over at once, far above what one does.
constexpr std::uint32_t kVectorsMax = 1024;
// Of one write; what is beyond is taken for written. A host function cannot be interrupted, so it must be short.
constexpr std::size_t kWriteBytesMax = 64 * 1024;

struct Vector {
    std::uint32_t at;
    std::uint32_t size;
};

bool is_output(std::uint32_t fd) {
    return fd == 1 || fd == 2;
}

void put_u32(std::uint8_t* to, std::uint32_t value) {
    std::memcpy(to, &value, sizeof value);
}
void put_u64(std::uint8_t* to, std::uint64_t value) {
    std::memcpy(to, &value, sizeof value);
}

void add_text(Event& event, std::size_t stream, std::string_view text) {
    std::string& line = event.open_lines[stream];
    event.lines_open = true;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view part = text.substr(0, end);
        line.append(part.substr(
            0, kLogLineBytesMax - std::min<std::size_t>(line.size(), kLogLineBytesMax)));
        if (end == std::string_view::npos) return;
        event.add_log(stream == 0 ? 2 : 3, line);
        line.clear();
        text.remove_prefix(end + 1);
    }
}

// Writes to standard output and error become log lines, also in the image phase, as log() may be called there.
std::uint32_t fd_write(std::uint32_t fd,
                       std::uint32_t vectors,
                       std::uint32_t count,
                       std::uint32_t written) {
    Worker& worker = Worker::enter_host();
    const Call call{worker, event_of(worker)};
    if (!is_output(fd)) return leave(call, kErrBadDescriptor);
    if (count > kVectorsMax) return leave(call, kErrInvalid);
    const std::uint8_t* list = checked(worker, vectors, count * sizeof(Vector));
    std::uint8_t* out = checked(worker, written, 4);
    std::uint64_t total = 0;
    for (int look = 0; look < 2; ++look) {
        std::size_t left = kWriteBytesMax;
        for (std::uint32_t i = 0; i < count; ++i) {
            Vector each{};
            std::memcpy(&each, list + i * sizeof each, sizeof each);
            const std::uint8_t* bytes = checked(worker, each.at, each.size);
            if (look == 0) {
                total += each.size;
                continue;
            }
            const std::size_t size = std::min<std::size_t>(each.size, left);
            add_text(call.event, fd - 1, as_text({bytes, size}));
            left -= size;
        }
    }
    put_u32(out, static_cast<std::uint32_t>(std::min<std::uint64_t>(total, INT32_MAX)));
    return leave(call, kSuccess);
}

// Standard output and error are terminals, so that a C library hands over each line when it ends and not a buffer later.
std::uint32_t fd_fdstat_get(std::uint32_t fd, std::uint32_t out) {
    constexpr std::uint32_t kFdstatBytes = 24;
    constexpr std::uint8_t kCharacterDevice = 2;
    constexpr std::uint64_t kRightWrite = 1u << 6;
    Worker& worker = Worker::enter_host();
    const Call call{worker, event_of(worker)};
    if (!is_output(fd)) return leave(call, kErrBadDescriptor);
    std::uint8_t* to = checked(worker, out, kFdstatBytes);
    std::memset(to, 0, kFdstatBytes);
    to[0] = kCharacterDevice;
    put_u64(to + 8, kRightWrite);
    return leave(call, kSuccess);
}

// The real-time and the monotonic clock stand still within an event; the CPU clocks are not told.
std::uint32_t clock_time_get(std::uint32_t id, std::uint64_t, std::uint32_t out) {
    const Call call = enter("clock_time_get");
    std::uint8_t* to = checked(call.worker, out, 8);
    if (id > 1) return leave(call, kErrInvalid);
    put_u64(to, static_cast<std::uint64_t>(call.event.now_ms) * 1'000'000);
    return leave(call, kSuccess);
}

std::uint32_t clock_res_get(std::uint32_t id, std::uint32_t out) {
    Worker& worker = Worker::enter_host();
    const Call call{worker, event_of(worker)};
    std::uint8_t* to = checked(worker, out, 8);
    if (id > 1) return leave(call, kErrInvalid);
    put_u64(to, 1'000'000);
    return leave(call, kSuccess);
}

std::uint32_t random_get(std::uint32_t p, std::uint32_t l) {
    const Call call = enter("random_get");
    fill_random(call, checked(call.worker, p, l), l);
    return leave(call, kSuccess);
}

// Two counts, both zero: arguments and environment.
std::uint32_t sizes_get(std::uint32_t count, std::uint32_t bytes) {
    Worker& worker = Worker::enter_host();
    const Call call{worker, event_of(worker)};
    std::uint8_t* first = checked(worker, count, 4);
    std::uint8_t* second = checked(worker, bytes, 4);
    put_u32(first, 0);
    put_u32(second, 0);
    return leave(call, kSuccess);
}

void proc_exit(std::uint32_t code) {
    Worker& worker = Worker::enter_host();
    Event& event = event_of(worker);
    event.abort.assign("proc_exit: the program ended itself with code ");
    event.abort.append(std::to_string(code));
    worker.stop_guest(Stop::Abort, 0);
}

}  // namespace

void fill_wasi_calls(hf_host_v1& host) {
    host.wasi_fd_write = fd_write;
    host.wasi_fd_fdstat_get = fd_fdstat_get;
    host.wasi_clock_time_get = clock_time_get;
    host.wasi_clock_res_get = clock_res_get;
    host.wasi_random_get = random_get;
    host.wasi_sizes_get = sizes_get;
    host.wasi_proc_exit = proc_exit;
}

}  // namespace hf::wasm
