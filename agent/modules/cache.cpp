#include "agent/modules/cache.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "abi/base/check.hpp"
#include "abi/base/hex.hpp"
#include "abi/base/sync.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/base/bounded_json.hpp"

namespace hf::modules {

namespace {

namespace fs = std::filesystem;

// What the MAC says of a .meta; another use of the key would have another word.
constexpr std::string_view kMacOf = "holdfast compiled module 1\n";
constexpr std::size_t kDigestDigits = 64;
constexpr mode_t kReadable = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
constexpr const char* kFiles[] = {".so", ".image", ".meta", ".mac"};

// A plain file with one name, opened so that nothing at that path can block or lead elsewhere.
Result<UniqueFd> open_plain(const fs::path& path, std::uint64_t bytes_max, bool links) {
    const int follow = links ? 0 : O_NOFOLLOW;
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | follow));
    if (!fd.valid()) {
        const int why = errno;
        Error error = fail_errno(why, "cannot open " + path.string());
        if (why == ENOENT) error.code = Code::NotFound;
        return error;
    }
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0) return fail_errno(errno, "cannot look at " + path.string());
    if (!S_ISREG(facts.st_mode) || (!links && facts.st_nlink != 1))
        return fail(Code::Invalid, path.string() + " is no plain file");
    if (static_cast<std::uint64_t>(facts.st_size) > bytes_max)
        return fail(Code::Invalid,
                    path.string() + " has " + std::to_string(facts.st_size) + " bytes, at most " +
                        std::to_string(bytes_max) + " are allowed");
    return fd;
}

Result<Bytes> read_open(int fd, const fs::path& path, std::uint64_t bytes_max) {
    Bytes out;
    for (;;) {
        constexpr std::size_t kStep = 256 * 1024;
        const std::size_t before = out.size();
        out.resize(before + kStep);
        const ssize_t got = ::read(fd, out.data() + before, kStep);
        if (got < 0 && errno != EINTR) return fail_errno(errno, "cannot read " + path.string());
        out.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
        // It may grow while it is read.
        if (out.size() > bytes_max)
            return fail(Code::Invalid,
                        path.string() + " has more than " + std::to_string(bytes_max) + " bytes");
        if (got == 0) return out;
    }
}

Result<Bytes> read_plain(const fs::path& path, std::uint64_t bytes_max, bool links = false) {
    HF_ASSIGN(const UniqueFd fd, open_plain(path, bytes_max, links));
    return read_open(fd.get(), path, bytes_max);
}

Result<void> place(const fs::path& path, BytesView bytes) {
    std::string fresh = path.string() + ".new";
    static_cast<void>(::unlink(fresh.c_str()));
    const UniqueFd fd(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kReadable));
    if (!fd.valid()) return fail_errno(errno, "cannot create " + fresh);
    int why = 0;
    while (!bytes.empty() && why == 0) {
        const ssize_t put = ::write(fd.get(), bytes.data(), bytes.size());
        if (put >= 0)
            bytes = bytes.subspan(static_cast<std::size_t>(put));
        else if (errno != EINTR)
            why = errno;
    }
    // The umask had its say at the opening.
    if (why == 0 && ::fchmod(fd.get(), kReadable) != 0) why = errno;
    if (why == 0 && ::fsync(fd.get()) != 0) why = errno;
    if (why == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) why = errno;
    if (why == 0) return {};
    static_cast<void>(::unlink(fresh.c_str()));
    return fail_errno(why, "cannot write " + path.string());
}

// Whoever had it before, from now on only this user writes there; everybody may read.
Result<void> own(const fs::path& directory) {
    const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    constexpr mode_t kMode = S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH;
    if (!fd.valid() || ::fchown(fd.get(), ::geteuid(), ::getegid()) != 0 ||
        ::fchmod(fd.get(), kMode) != 0)
        return fail_errno(errno, "cannot take over the directory " + directory.string());
    return {};
}

// What a .meta must say to be that of `key`, made from `wasm_sha256`.
Result<void> judge_meta(BytesView meta, const std::string& key, const std::string& wasm_sha256) {
    const auto document = base::parse_bounded(as_text(meta));
    if (!document || !document->is_object())
        return fail(Code::Corrupt, "the .meta of module " + key + " does not read");
    const auto says = [&](const char* name) {
        const auto found = document->find(name);
        return found != document->end() && found->is_string() ? found->get<std::string>()
                                                              : std::string();
    };
    if (says("key") != key || says("wasm_sha256") != wasm_sha256)
        return fail(Code::Corrupt, "the .meta of module " + key + " is that of another module");
    if (!is_sha256(says("so_sha256")) || !is_sha256(says("image_sha256")))
        return fail(Code::Corrupt, "the .meta of module " + key + " names no hashes");
    return {};
}

}  // namespace

std::string sha256_hex(BytesView bytes) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    ::SHA256(bytes.data(), bytes.size(), digest.data());
    return hex(BytesView(digest));
}

bool is_sha256(std::string_view text) {
    return text.size() == kDigestDigits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

Cache::Cache(fs::path directory, const MacKey& key) : directory_(std::move(directory)), key_(key) {}

fs::path Cache::file(const std::string& key,
                     const std::string& wasm_sha256,
                     const char* extension) const {
    return directory_ / wasm_sha256 / (key + extension);
}

Result<fs::path> Cache::view(const std::string& wasm_sha256) const {
    fs::path path = directory_ / wasm_sha256;
    std::error_code error;
    fs::create_directory(path, error);
    if (error) return fail_errno(error.value(), "cannot make " + path.string());
    HF_TRY(own(path));
    return path;
}

fs::path Cache::copy(const std::string& wasm_sha256) const {
    return directory_ / (wasm_sha256 + ".wasm");
}

Result<void> Cache::open() const {
    return own(directory_);
}

Result<std::string> Cache::take(const fs::path& path) const {
    HF_ASSIGN(const Bytes module, read_plain(path, kModuleBytesMax, true));
    std::string hash = sha256_hex(module);
    if (const auto kept = read_plain(copy(hash), kModuleBytesMax); !kept || *kept != module)
        HF_TRY(place(copy(hash), module));
    // What is deployed is named by its hash alone: after a power cut too it must be there.
    HF_TRY(sync_directory(directory_));
    return hash;
}

Result<void> Cache::check_copy(const std::string& wasm_sha256) const {
    HF_ASSIGN(const Bytes module, read_plain(copy(wasm_sha256), kModuleBytesMax));
    if (sha256_hex(module) != wasm_sha256)
        return fail(Code::Corrupt,
                    "the copy of a module " + copy(wasm_sha256).string() + " is damaged");
    return {};
}

std::string Cache::mac_of(BytesView meta) const {
    Bytes said;
    const BytesView word = as_bytes(kMacOf);
    said.insert(said.end(), word.begin(), word.end());
    said.insert(said.end(), meta.begin(), meta.end());
    std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
    unsigned size = 0;
    const auto* made = ::HMAC(::EVP_sha256(),
                              key_.data(),
                              static_cast<int>(key_.size()),
                              said.data(),
                              said.size(),
                              mac.data(),
                              &size);
    HF_CHECK(made != nullptr, "HMAC-SHA256 of bytes in memory cannot fail");
    return hex(BytesView(mac).first(size));
}

Result<Entry> Cache::find(const std::string& key, const std::string& wasm_sha256) const {
    HF_ASSIGN(const Bytes meta, read_plain(file(key, wasm_sha256, ".meta"), kMetaBytesMax));
    const auto mac = read_plain(file(key, wasm_sha256, ".mac"), kDigestDigits);
    const std::string good = mac_of(meta);
    if (!mac || mac->size() != good.size() ||
        ::CRYPTO_memcmp(mac->data(), good.data(), good.size()) != 0)
        return fail(Code::Corrupt, "the compiled module " + key + " has no good MAC of this node");
    HF_TRY(judge_meta(meta, key, wasm_sha256));
    return Entry{key, wasm_sha256, sha256_hex(meta)};
}

Result<fs::path> Cache::fresh_staging() const {
    fs::path staging = directory_ / "incoming";
    std::error_code error;
    fs::remove_all(staging, error);
    if (!error) fs::create_directory(staging, error);
    if (error) return fail_errno(error.value(), "cannot make " + staging.string());
    return staging;
}

// The builder and everything it started are gone by now; what they left may be anything.
Result<Entry> Cache::adopt(const std::string& key, const std::string& wasm_sha256) const {
    const std::pair<const char*, std::uint64_t> files[] = {
        {".so", kSoBytesMax}, {".image", kImageBytesMax}, {".meta", kMetaBytesMax}};
    const fs::path staging = directory_ / "incoming";
    HF_ASSIGN(const fs::path directory, view(wasm_sha256));
    Bytes meta;
    for (const auto& [extension, bytes_max] : files) {
        const fs::path from = staging / (key + extension);
        auto fd = open_plain(from, bytes_max, false);
        if (!fd)
            return fail(Code::Corrupt,
                        "the builder left no " + key + extension + ": " + fd.error().message);
        if (std::string_view(extension) == ".meta") {
            HF_ASSIGN(meta, read_open(fd->get(), from, bytes_max));
            HF_TRY(judge_meta(meta, key, wasm_sha256));
        }
        if (::fchown(fd->get(), ::geteuid(), ::getegid()) != 0 ||
            ::fchmod(fd->get(), kReadable) != 0)
            return fail_errno(errno, "cannot take over " + from.string());
    }
    // Without a MAC until the last step: whatever lies there meanwhile is not used.
    static_cast<void>(::unlink(file(key, wasm_sha256, ".mac").c_str()));
    for (const auto& [extension, bytes_max] : files) {
        std::error_code error;
        fs::rename(staging / (key + extension), directory / (key + extension), error);
        if (error) return fail_errno(error.value(), "cannot keep " + key + extension);
    }
    HF_TRY(place(file(key, wasm_sha256, ".mac"), as_bytes(mac_of(meta))));
    return Entry{key, wasm_sha256, sha256_hex(meta)};
}

void Cache::set_aside(const std::string& key, const std::string& wasm_sha256) const {
    const fs::path bad = directory_ / "bad";
    std::error_code error;
    fs::remove_all(bad, error);
    fs::create_directory(bad, error);
    for (const char* extension : kFiles) {
        const fs::path from = file(key, wasm_sha256, extension);
        fs::rename(from, bad / (key + extension), error);
        if (error) fs::remove(from, error);
    }
}

void Cache::trim(const std::set<std::string>& wasm) const {
    std::error_code error;
    std::vector<fs::path> unwanted;
    std::vector<std::pair<fs::file_time_type, fs::path>> made;
    for (const auto& found : fs::directory_iterator(directory_, error)) {
        const std::string stem = found.path().stem().string();
        const std::string extension = found.path().extension().string();
        if (extension == ".wasm" && !wasm.contains(stem)) unwanted.push_back(found.path());
        // As they lay before each module had a directory.
        if (extension == ".so" || extension == ".image" || extension == ".meta")
            unwanted.push_back(found.path());
        // Of a copy that was cut off by our end.
        if (extension == ".new") unwanted.push_back(found.path());
        if (modules::is_sha256(found.path().filename().string()) && !wasm.contains(stem))
            made.emplace_back(found.last_write_time(error), found.path());
    }
    std::sort(made.begin(), made.end());
    const std::size_t room = kEntriesMax - std::min(kEntriesMax, wasm.size());
    for (std::size_t i = 0; i + room < made.size(); ++i) unwanted.push_back(made[i].second);
    for (const fs::path& path : unwanted) fs::remove_all(path, error);
}

}  // namespace hf::modules
