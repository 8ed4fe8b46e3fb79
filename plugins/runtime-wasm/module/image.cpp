#include "plugins/runtime-wasm/module/image.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hf::wasm {

namespace {

constexpr std::size_t kChunkBytes = 4096;
constexpr std::string_view kMagic = "HFIMAGE1";
constexpr std::size_t kHeadBytes = 24;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

template <class T>
void append(Bytes& out, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
        out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

template <class T>
T take(const std::uint8_t* at) {
    T value{};
    std::memcpy(&value, at, sizeof value);  // x86-64 only, as the compiled modules are
    return value;
}

bool all_zero(BytesView chunk) {
    return std::all_of(chunk.begin(), chunk.end(), [](std::uint8_t byte) { return byte == 0; });
}

Result<void> write_at(int fd, BytesView bytes, std::size_t at) {
    while (!bytes.empty()) {
        const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return fail_errno(errno, "writing a memory image");
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        at += static_cast<std::size_t>(done);
    }
    return {};
}

Result<UniqueFd> new_memfd(const char* name) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return fail_errno(errno, "creating a memory file");
    return fd;
}

Result<void> seal(int fd) {
    if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0) return fail_errno(errno, "sealing a memory file");
    return {};
}

}  // namespace

Bytes encode_image(BytesView memory, const std::vector<std::uint64_t>& globals) {
    std::vector<std::uint32_t> chunks;
    for (std::size_t at = 0; at < memory.size(); at += kChunkBytes)
        if (!all_zero(memory.subspan(at, kChunkBytes)))
            chunks.push_back(static_cast<std::uint32_t>(at / kChunkBytes));

    Bytes out;
    out.reserve(kHeadBytes + globals.size() * 8 + chunks.size() * (4 + kChunkBytes));
    out.assign(kMagic.begin(), kMagic.end());
    append(out, static_cast<std::uint32_t>(memory.size() / kWasmPageBytes));
    append(out, static_cast<std::uint32_t>(globals.size()));
    append(out, static_cast<std::uint32_t>(chunks.size()));
    append(out, std::uint32_t{0});
    for (const std::uint64_t global : globals) append(out, global);
    for (const std::uint32_t chunk : chunks) append(out, chunk);
    for (const std::uint32_t chunk : chunks) {
        const BytesView bytes = memory.subspan(chunk * kChunkBytes, kChunkBytes);
        out.insert(out.end(), bytes.begin(), bytes.end());
    }
    return out;
}

Result<std::uint32_t> image_pages(BytesView file) {
    if (file.size() < kHeadBytes || as_text(file.first(kMagic.size())) != kMagic)
        return fail(Code::Corrupt, "the memory image is not one of ours");
    const auto pages = take<std::uint32_t>(file.data() + 8);
    const std::uint64_t globals = take<std::uint32_t>(file.data() + 12);
    const std::uint64_t chunks = take<std::uint32_t>(file.data() + 16);
    if (pages > 65535 || file.size() != kHeadBytes + globals * 8 + chunks * (4 + kChunkBytes))
        return fail(
            Code::Corrupt,
            "the memory image's counts do not fit its " + std::to_string(file.size()) + " bytes");
    return pages;
}

Result<Image> decode_image(BytesView file) {
    Image image;
    HF_ASSIGN(image.pages, image_pages(file));
    const auto globals = take<std::uint32_t>(file.data() + 12);
    const auto chunks = take<std::uint32_t>(file.data() + 16);

    const std::uint8_t* at = file.data() + kHeadBytes;
    for (std::uint32_t i = 0; i < globals; ++i, at += 8)
        image.globals.push_back(take<std::uint64_t>(at));
    const std::uint8_t* data = at + std::size_t{chunks} * 4;
    const std::uint64_t chunk_end = std::uint64_t{image.pages} * (kWasmPageBytes / kChunkBytes);
    HF_ASSIGN(image.memory_fd, new_memfd("hf-wasm-image"));
    if (::ftruncate(image.memory_fd.get(), static_cast<off_t>(image.pages * kWasmPageBytes)) != 0)
        return fail_errno(errno, "sizing a memory image");
    for (std::uint32_t i = 0; i < chunks; ++i, at += 4, data += kChunkBytes) {
        const auto chunk = take<std::uint32_t>(at);
        if (chunk >= chunk_end)
            return fail(Code::Corrupt, "the memory image has a page beyond its end");
        HF_TRY(
            write_at(image.memory_fd.get(), {data, kChunkBytes}, std::size_t{chunk} * kChunkBytes));
    }
    HF_TRY(seal(image.memory_fd.get()));
    return image;
}

Result<UniqueFd> sealed_memfd(const char* name, BytesView bytes) {
    HF_ASSIGN(UniqueFd fd, new_memfd(name));
    HF_TRY(write_at(fd.get(), bytes, 0));
    HF_TRY(seal(fd.get()));
    return fd;
}

}  // namespace hf::wasm
