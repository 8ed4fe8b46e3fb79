#include "agent/store/journal_file.hpp"

#include <lmdb.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/base/bytes.hpp"
#include "abi/base/check.hpp"
#include "abi/base/hex.hpp"
#include "abi/base/sync.hpp"

namespace hf::store {

namespace {
constexpr std::uint64_t kFormat = 1;
// Address space for so many times the items: LMDB keeps pages of the transaction before until the next one is on disk, and
// an item takes whole pages.
constexpr std::uint64_t kMapPerByte = 8;
constexpr std::uint64_t kMapMin = 64ULL << 20U;
// And for the letters, each of at most 16 pages: the largest is a whole event of 60 KiB, with its names and the reason.
constexpr std::uint64_t kLettersBytes = 288ULL << 20U;
static_assert(JournalFile::kLettersMax * 16 * 4096 < kLettersBytes);
constexpr MDB_dbi kTables = 3;
constexpr std::size_t kKeyBytes = 8;

using Key = std::array<std::uint8_t, kKeyBytes>;  // big endian: LMDB sorts by bytes
Key key_of(std::uint64_t number) {
    Key out{};
    for (std::size_t i = 0; i < kKeyBytes; ++i)
        out[i] = static_cast<std::uint8_t>(number >> (8 * (kKeyBytes - 1 - i)));
    return out;
}
std::uint64_t number_of(const MDB_val& value) {
    std::uint64_t out = 0;
    const auto* bytes = static_cast<const std::uint8_t*>(value.mv_data);
    for (std::size_t i = 0; i < kKeyBytes; ++i) out = out << 8U | bytes[i];
    return out;
}
MDB_val val(std::span<const std::uint8_t> bytes) {
    // SAFETY: LMDB's type has no const; it does not write through keys and values that it is given.
    return {
        bytes.size(),
        const_cast<std::uint8_t*>(bytes.data())};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}
BytesView view(const MDB_val& value) {
    return {static_cast<const std::uint8_t*>(value.mv_data), value.mv_size};
}

Bytes encode(const core::JournalItem& item) {
    Bytes out;
    FlatWriter flat(out);
    flat.u64(static_cast<std::uint64_t>(item.accepted_ms));
    flat.field(item.class_name);
    flat.field(item.name);
    flat.field(item.event);
    return out;
}
bool decode(BytesView bytes, core::JournalItem& item) {
    FlatReader flat(bytes);
    std::uint64_t accepted = 0;
    std::string_view class_name;
    std::string_view name;
    BytesView event;
    if (!flat.u64(accepted) || !flat.field(class_name) || !flat.field(name) || !flat.field(event) ||
        !flat.done())
        return false;
    item.accepted_ms = static_cast<std::int64_t>(accepted);
    item.class_name = class_name;
    item.name = name;
    item.event.assign(event.begin(), event.end());
    return true;
}

Bytes encode(const core::DeadLetter& letter) {
    Bytes out;
    FlatWriter flat(out);
    flat.u64(letter.n);
    flat.u64(static_cast<std::uint64_t>(letter.at_ms));
    flat.field(letter.source);
    flat.field(letter.target);
    flat.field(letter.method);
    flat.field(letter.why);
    flat.field(letter.payload);
    return out;
}
bool decode(BytesView bytes, core::DeadLetter& letter) {
    FlatReader flat(bytes);
    std::uint64_t at = 0;
    std::string_view source;
    std::string_view target;
    std::string_view method;
    std::string_view why;
    BytesView payload;
    if (!flat.u64(letter.n) || !flat.u64(at) || !flat.field(source) || !flat.field(target) ||
        !flat.field(method) || !flat.field(why) || !flat.field(payload) || !flat.done())
        return false;
    letter.at_ms = static_cast<std::int64_t>(at);
    letter.source = source;
    letter.target = target;
    letter.method = method;
    letter.why = why;
    letter.payload.assign(payload.begin(), payload.end());
    return true;
}

// Neither committed nor aborted twice.
class Txn {
public:
    Txn(MDB_env* env, bool write)
        : code_(mdb_txn_begin(env, nullptr, write ? 0U : MDB_RDONLY, &txn_)) {}
    ~Txn() {
        if (txn_ != nullptr) mdb_txn_abort(txn_);
    }
    Txn(const Txn&) = delete;
    Txn& operator=(const Txn&) = delete;
    [[nodiscard]] int code() const { return code_; }
    [[nodiscard]] MDB_txn* get() const { return txn_; }
    [[nodiscard]] int commit() { return mdb_txn_commit(std::exchange(txn_, nullptr)); }

private:
    MDB_txn* txn_ = nullptr;
    int code_;
};

class Cursor {
public:
    Cursor(MDB_txn* txn, MDB_dbi table) : code_(mdb_cursor_open(txn, table, &cursor_)) {}
    ~Cursor() {
        if (cursor_ != nullptr) mdb_cursor_close(cursor_);
    }
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;
    [[nodiscard]] int get(MDB_val& key, MDB_val& value, MDB_cursor_op op) {
        return code_ != 0 ? code_ : mdb_cursor_get(cursor_, &key, &value, op);
    }

private:
    MDB_cursor* cursor_ = nullptr;
    int code_;
};
}  // namespace

struct JournalFile::Env {
    MDB_env* env = nullptr;
    MDB_dbi meta = 0;
    MDB_dbi items = 0;
    MDB_dbi letters = 0;

    ~Env() {
        if (env != nullptr) mdb_env_close(env);
    }
    [[nodiscard]] static MDB_val name(std::string_view text) { return val(as_bytes(text)); }
    [[nodiscard]] int put_number(MDB_txn* txn, std::string_view text, std::uint64_t number) const {
        const Key bytes = key_of(number);
        MDB_val key = name(text);
        MDB_val value = val(bytes);
        return mdb_put(txn, meta, &key, &value, 0);
    }
    [[nodiscard]] int get_number(MDB_txn* txn, std::string_view text, std::uint64_t& out) const {
        MDB_val key = name(text);
        MDB_val value{};
        const int code = mdb_get(txn, meta, &key, &value);
        if (code != 0) return code;
        if (value.mv_size != kKeyBytes) return MDB_CORRUPTED;
        out = number_of(value);
        return 0;
    }
    [[nodiscard]] int write(MDB_txn* txn, const core::JournalAppend& append) const {
        const Key number = key_of(append.item.n);
        const Bytes body = encode(append.item);
        MDB_val key = val(number);
        MDB_val value = val(body);
        const int code = mdb_put(txn, items, &key, &value, MDB_APPEND);
        return code != 0 ? code : put_number(txn, "next", append.item.n + 1);
    }
    [[nodiscard]] int write(MDB_txn* txn, const core::JournalRemove& remove) const {
        for (const std::uint64_t n : remove.numbers) {
            const Key number = key_of(n);
            MDB_val key = val(number);
            const int code = mdb_del(txn, items, &key, nullptr);
            if (code != 0 && code != MDB_NOTFOUND) return code;
        }
        return 0;
    }
    [[nodiscard]] int write(MDB_txn* txn, const core::JournalBury& bury) const {
        MDB_stat stat{};
        int code = mdb_stat(txn, letters, &stat);
        MDB_val key{};
        MDB_val value{};
        std::uint64_t last = 0;
        {
            Cursor cursor(txn, letters);
            if (code == 0 && cursor.get(key, value, MDB_LAST) == 0) last = number_of(key);
            if (code == 0 && stat.ms_entries >= kLettersMax)
                code = cursor.get(key, value, MDB_FIRST);
            if (code == 0 && stat.ms_entries >= kLettersMax) {
                const Key oldest = key_of(number_of(key));
                MDB_val first = val(oldest);
                code = mdb_del(txn, letters, &first, nullptr);
            }
        }
        if (code != 0) return code;
        const Key number = key_of(last + 1);
        const Bytes body = encode(bury.letter);
        key = val(number);
        value = val(body);
        return mdb_put(txn, letters, &key, &value, MDB_APPEND);
    }
};

JournalFile::JournalFile(std::filesystem::path directory)
    : directory_(std::move(directory)), env_(std::make_unique<Env>()) {}
JournalFile::~JournalFile() = default;

std::string JournalFile::sentence(int code) const {
    const std::string file = (directory_ / "data.mdb").string();
    switch (code) {
        case MDB_MAP_FULL:
            return "the journal " + file + " is full";
        case ENOSPC:
        case EDQUOT:
            return "the disk under the journal " + file + " is full";
        case EFBIG:
            return "the journal " + file + " may not grow (file size limit)";
        case MDB_PANIC:
            return "the journal " + file + " could not be written and must be opened again";
        default:
            return "the journal " + file + ": " + mdb_strerror(code);
    }
}

Error JournalFile::damaged(const std::string& how) const {
    return fail(Code::Corrupt,
                "the journal " + (directory_ / "data.mdb").string() + " is damaged (" + how +
                    "); it holds requests that were answered 202. Put a copy back, or move the "
                    "directory away to start without them; nothing was changed");
}

Result<std::unique_ptr<JournalFile>> JournalFile::open(const std::filesystem::path& directory,
                                                       std::uint64_t bytes_max) {
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
        return fail_errno(errno, "making the journal's directory " + directory.string());
    std::unique_ptr<JournalFile> out(new JournalFile(directory));
    HF_TRY(out->open_env(bytes_max));
    HF_TRY(out->begin_stream());
    return out;
}

Result<void> JournalFile::open_env(std::uint64_t bytes_max) {
    Env& env = *env_;
    const std::filesystem::path file = directory_ / "data.mdb";
    HF_CHECK(mdb_env_create(&env.env) == 0, "an environment can always be prepared");
    int code = mdb_env_set_maxdbs(env.env, kTables);
    if (code == 0)
        code = mdb_env_set_mapsize(env.env,
                                   std::max(kMapMin, bytes_max * kMapPerByte) + kLettersBytes);
    if (code == 0) code = mdb_env_open(env.env, directory_.c_str(), MDB_NOTLS, 0600);
    if (code == MDB_INVALID || code == MDB_VERSION_MISMATCH || code == MDB_CORRUPTED)
        return damaged(mdb_strerror(code));
    if (code != 0) return fail(Code::Io, "opening " + sentence(code));
    // A file that was cut is found here, and not by a fault of this process at the first page that is missing.
    MDB_envinfo info{};
    MDB_stat stat{};
    struct stat found {};
    if (mdb_env_info(env.env, &info) != 0 || mdb_env_stat(env.env, &stat) != 0 ||
        ::stat(file.c_str(), &found) != 0)
        return fail_errno(errno, "looking at " + file.string());
    const std::uint64_t used = (info.me_last_pgno + 1) * stat.ms_psize;
    // The last page of a new environment is only written with its first transaction.
    if (info.me_last_txnid != 0 && static_cast<std::uint64_t>(found.st_size) < used)
        return damaged("it is cut off at byte " + std::to_string(found.st_size) + " of " +
                       std::to_string(used));
    return {};
}

Result<void> JournalFile::begin_stream() {
    Env& env = *env_;
    Txn txn(env.env, true);
    int code = txn.code();
    if (code == 0) code = mdb_dbi_open(txn.get(), "meta", MDB_CREATE, &env.meta);
    if (code == 0) code = mdb_dbi_open(txn.get(), "items", MDB_CREATE, &env.items);
    if (code == 0) code = mdb_dbi_open(txn.get(), "letters", MDB_CREATE, &env.letters);
    std::uint64_t format = 0;
    if (code == 0) code = env.get_number(txn.get(), "format", format);
    if (code == 0) {
        // Nothing is written; the tables stay open only past a commit.
        if (format == kFormat) code = txn.commit();
        if (format == kFormat && code == 0) return {};
        if (code != 0) return fail(Code::Io, "opening " + sentence(code));
        return fail(Code::Corrupt,
                    "the journal " + (directory_ / "data.mdb").string() + " has format " +
                        std::to_string(format) + ", this version reads " + std::to_string(kFormat));
    }
    if (code != MDB_NOTFOUND) return damaged(mdb_strerror(code));
    // A new stream: a name that no other journal has or had.
    std::array<std::uint8_t, 16> random{};
    if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
        return fail_errno(errno, "asking the system for random bytes");
    const std::string stream = hex(BytesView(random));
    MDB_val key = Env::name("stream");
    MDB_val value = val(as_bytes(stream));
    code = mdb_put(txn.get(), env.meta, &key, &value, 0);
    if (code == 0) code = env.put_number(txn.get(), "next", 1);
    if (code == 0) code = env.put_number(txn.get(), "format", kFormat);
    if (code == 0) code = txn.commit();
    if (code != 0) return fail(Code::Io, "beginning " + sentence(code));
    // A file that nobody finds after a power cut would have kept nothing.
    HF_TRY(sync_directory(directory_));
    return sync_directory(directory_.parent_path());
}

Result<core::JournalLoaded> JournalFile::load() const {
    const Env& env = *env_;
    const Txn txn(env.env, false);
    if (txn.code() != 0) return fail(Code::Io, "reading " + sentence(txn.code()));
    core::JournalLoaded out;
    MDB_val key = Env::name("stream");
    MDB_val value{};
    if (mdb_get(txn.get(), env.meta, &key, &value) != 0 || value.mv_size == 0)
        return damaged("its stream has no name");
    out.stream = as_text(view(value));
    if (env.get_number(txn.get(), "next", out.next) != 0)
        return damaged("it does not say which number comes next");
    Cursor cursor(txn.get(), env.items);
    int code = cursor.get(key, value, MDB_FIRST);
    for (; code == 0; code = cursor.get(key, value, MDB_NEXT)) {
        core::JournalItem item;
        const bool numbered = key.mv_size == kKeyBytes;
        if (numbered) item.n = number_of(key);
        if (!numbered || item.n >= out.next || !decode(view(value), item))
            return damaged("request " + std::to_string(item.n) + " does not read as one");
        out.items.push_back(std::move(item));
    }
    if (code != MDB_NOTFOUND) return damaged(mdb_strerror(code));
    return out;
}

JournalFile::Outcome JournalFile::apply(std::span<const Write> batch) {
    if (broken_) return {core::Outcome::Refused, sentence(MDB_PANIC)};
    int code = 0;
    {
        Txn txn(env_->env, true);
        code = txn.code();
        for (const Write& write : batch) {
            if (code != 0) break;
            code =
                std::visit([&](const auto& what) { return env_->write(txn.get(), what); }, write);
        }
        if (code == 0) code = txn.commit();
    }
    if (code == 0) return {};
    // LMDB writes its pages, then one page that makes them count. Only when that last write failed is the outcome open, and
    // then it begins no further transaction.
    broken_ = Txn(env_->env, true).code() != 0;
    return {broken_ ? core::Outcome::Unknown : core::Outcome::Refused, sentence(code)};
}

Result<std::vector<core::DeadLetter>> JournalFile::letters(std::size_t limit) const {
    const Env& env = *env_;
    const Txn txn(env.env, false);
    if (txn.code() != 0) return fail(Code::Io, "reading " + sentence(txn.code()));
    std::vector<core::DeadLetter> out;
    Cursor cursor(txn.get(), env.letters);
    MDB_val key{};
    MDB_val value{};
    int code = cursor.get(key, value, MDB_LAST);
    for (; code == 0 && out.size() < limit; code = cursor.get(key, value, MDB_PREV)) {
        core::DeadLetter letter;
        if (!decode(view(value), letter)) return damaged("a letter does not read as one");
        out.push_back(std::move(letter));
    }
    if (code != 0 && code != MDB_NOTFOUND) return damaged(mdb_strerror(code));
    return out;
}

}  // namespace hf::store
