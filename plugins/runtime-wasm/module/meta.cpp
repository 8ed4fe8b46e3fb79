#include "plugins/runtime-wasm/module/meta.hpp"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "abi/base/unique_fd.hpp"

namespace hf::wasm {

std::string to_json(const Meta& meta) {
    const nlohmann::ordered_json json = {
        {"version", 1},
        {"key", meta.key},
        {"wasm_sha256", meta.wasm_sha256},
        {"so_sha256", meta.so_sha256},
        {"image_sha256", meta.image_sha256},
        {"abi", meta.abi},
        {"memory_pages", meta.memory_pages},
        {"memory_pages_max", meta.memory_pages_max},
        {"exports", meta.exports},
        {"wabt", meta.wabt},
        {"gcc", meta.gcc},
    };
    return json.dump(2) + "\n";
}

Result<Meta> parse_meta(std::string_view text) {
    try {
        const auto json = nlohmann::json::parse(text);
        if (json.at("version").get<int>() != 1)
            return fail(Code::Corrupt, "the module's .meta file has a version other than 1");
        Meta meta;
        json.at("key").get_to(meta.key);
        json.at("wasm_sha256").get_to(meta.wasm_sha256);
        json.at("so_sha256").get_to(meta.so_sha256);
        json.at("image_sha256").get_to(meta.image_sha256);
        json.at("abi").get_to(meta.abi);
        json.at("memory_pages").get_to(meta.memory_pages);
        json.at("memory_pages_max").get_to(meta.memory_pages_max);
        json.at("exports").get_to(meta.exports);
        json.at("wabt").get_to(meta.wabt);
        json.at("gcc").get_to(meta.gcc);
        return meta;
    } catch (const nlohmann::json::exception& why) {
        return fail(Code::Corrupt,
                    std::string("the module's .meta file does not read: ") + why.what());
    }
}

std::string sha256_hex(BytesView bytes) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    ::SHA256(bytes.data(), bytes.size(), digest.data());
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    out.reserve(2 * digest.size());
    for (const unsigned char byte : digest) {
        out.push_back(kDigits[byte >> 4]);
        out.push_back(kDigits[byte & 15]);
    }
    return out;
}

Result<Bytes> read_file(const std::string& path, std::size_t bytes_max) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!fd.valid()) {
        const int why = errno;
        Error error = fail_errno(why, "opening " + path);
        if (why == ENOENT) error.code = Code::NotFound;
        return error;
    }
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0) return fail_errno(errno, "looking at " + path);
    if (!S_ISREG(facts.st_mode)) return fail(Code::Invalid, path + " is not a regular file");
    if (static_cast<std::uint64_t>(facts.st_size) > bytes_max)
        return fail(Code::Invalid,
                    path + " has " + std::to_string(facts.st_size) + " bytes, at most " +
                        std::to_string(bytes_max) + " are allowed");
    Bytes bytes(static_cast<std::size_t>(facts.st_size));
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t got = ::read(fd.get(), bytes.data() + done, bytes.size() - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(errno, "reading " + path);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    bytes.resize(done);
    return bytes;
}

Result<CachedModule> read_cached(const std::string& base) {
    CachedModule out;
    HF_ASSIGN(const Bytes meta, read_file(base + ".meta", kMetaBytesMax));
    HF_ASSIGN(out.meta, parse_meta(as_text(meta)));
    out.meta_sha256 = sha256_hex(meta);
    HF_ASSIGN(out.so, read_file(base + ".so", kSoBytesMax));
    HF_ASSIGN(out.image, read_file(base + ".image", kImageBytesMax));
    if (sha256_hex(out.so) != out.meta.so_sha256)
        return fail(Code::Corrupt,
                    base + ".so does not have the hash its .meta names: build the module again");
    if (sha256_hex(out.image) != out.meta.image_sha256)
        return fail(Code::Corrupt,
                    base + ".image does not have the hash its .meta names: build the module again");
    return out;
}

}  // namespace hf::wasm
