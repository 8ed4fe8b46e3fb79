#include "plugins/storage-s3/xml.hpp"

#include <expat.h>

#include <charconv>
#include <ctime>
#include <memory>

#include "plugins/storage-s3/etag.hpp"
#include "plugins/storage-s3/sign.hpp"

namespace hf::s3 {
namespace {

// Walks a document and hands each leaf's text to `leaf(path)`, path = names from below the root, joined by '/'.
class Walk {
public:
    virtual ~Walk() = default;

    // False: it is no whole document, or beyond a bound; trouble() says which.
    bool run(std::string_view xml) {
        if (xml.size() > kXmlBytesMax) return refuse("it is too long");
        const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
            XML_ParserCreate(nullptr), &XML_ParserFree);
        if (parser == nullptr) return refuse("no parser");
        parser_ = parser.get();
        XML_SetUserData(parser_, this);
        XML_SetElementHandler(parser_, &Walk::on_start, &Walk::on_end);
        XML_SetCharacterDataHandler(parser_, &Walk::on_text);
        XML_SetStartDoctypeDeclHandler(parser_, &Walk::on_doctype);
        const XML_Status status =
            XML_Parse(parser_, xml.data(), static_cast<int>(xml.size()), XML_TRUE);
        if (status == XML_STATUS_OK && trouble_.empty()) return true;
        if (trouble_.empty()) trouble_ = XML_ErrorString(XML_GetErrorCode(parser_));
        return false;
    }
    [[nodiscard]] const std::string& trouble() const { return trouble_; }
    [[nodiscard]] const std::string& root() const { return root_; }

protected:
    virtual void begin(const std::string& path) {}
    virtual void end(const std::string& path, const std::string& text) = 0;
    bool refuse(const char* why) {
        if (trouble_.empty()) trouble_ = why;
        if (parser_ != nullptr) XML_StopParser(parser_, XML_FALSE);
        return false;
    }

private:
    // SAFETY: the user data is what run() set.
    static Walk& self(void* data) { return *static_cast<Walk*>(data); }

    static void on_start(void* data, const XML_Char* name, const XML_Char**) {
        Walk& walk = self(data);
        if (++walk.depth_ > kXmlDepthMax || ++walk.elements_ > kXmlElementsMax) {
            walk.refuse("it is nested too deep or has too many elements");
            return;
        }
        walk.text_.clear();
        if (walk.depth_ == 1) {
            walk.root_ = name;
            return;
        }
        if (!walk.path_.empty()) walk.path_ += '/';
        walk.path_ += name;
        walk.begin(walk.path_);
    }
    static void on_end(void* data, const XML_Char*) {
        Walk& walk = self(data);
        if (walk.depth_-- == 1) return;
        walk.end(walk.path_, walk.text_);
        const std::size_t slash = walk.path_.rfind('/');
        walk.path_.resize(slash == std::string::npos ? 0 : slash);
        walk.text_.clear();
    }
    static void on_text(void* data, const XML_Char* text, int size) {
        self(data).text_.append(text, static_cast<std::size_t>(size));
    }
    // Entities of one's own are what a document bomb is made of; S3 has none.
    static void on_doctype(void* data, const XML_Char*, const XML_Char*, const XML_Char*, int) {
        self(data).refuse("it has a document type");
    }

    XML_Parser parser_ = nullptr;
    std::string trouble_;
    std::string root_;
    std::string path_;
    std::string text_;
    unsigned depth_ = 0;
    std::size_t elements_ = 0;
};

class ErrorWalk final : public Walk {
public:
    StoreError error;

protected:
    void end(const std::string& path, const std::string& text) override {
        if (path == "Code") error.code = text;
        if (path == "Message") error.message = text;
        if (path == "Region") error.region = text;
        if (path == "Endpoint") error.endpoint = text;
    }
};

class ListWalk final : public Walk {
public:
    Listing listing;
    bool encoded = false;
    bool complete = false;  // it says whether it goes on

protected:
    void begin(const std::string& path) override {
        if (path == "Contents") listing.keys.emplace_back();
    }
    void end(const std::string& path, const std::string& text) override {
        if (path == "EncodingType") {
            encoded = text == "url";
        } else if (path == "IsTruncated") {
            complete = text == "true" || text == "false";
            listing.truncated = text == "true";
        } else if (path == "NextContinuationToken") {
            listing.next_token = text;
        } else if (path == "Contents/Key") {
            listing.keys.back().key = text;
        } else if (path == "Contents/ETag") {
            listing.keys.back().etag = etag_from_wire(text);
        } else if (path == "Contents/Size") {
            const char* last = text.data() + text.size();
            const auto [at, failed] = std::from_chars(text.data(), last, listing.keys.back().size);
            if (failed != std::errc() || at != last) refuse("a size is no number");
        } else if (path == "Contents/LastModified") {
            listing.keys.back().last_modified_ms = parse_timestamp(text);
            if (listing.keys.back().last_modified_ms < 0) refuse("a time cannot be read");
        }
    }
};

Error corrupt(const std::string& why) {
    return fail(Code::Corrupt, "the store's listing cannot be used: " + why);
}

}  // namespace

StoreError read_error(std::string_view xml) {
    ErrorWalk walk;
    if (!walk.run(xml) || walk.root() != "Error") return {};
    return std::move(walk.error);
}

Result<Listing> read_listing(std::string_view xml,
                             std::string_view prefix,
                             std::string_view after) {
    ListWalk walk;
    if (!walk.run(xml)) return corrupt(walk.trouble());
    if (walk.root() != "ListBucketResult") return corrupt("it is a " + walk.root());
    if (!walk.complete) return corrupt("it does not say whether it goes on");
    std::string last(after);
    for (ListedKey& one : walk.listing.keys) {
        if (walk.encoded) {
            std::string decoded;
            if (!percent_decoded(one.key, decoded))
                return corrupt("a key is not encoded as it says");
            one.key = std::move(decoded);
        }
        if (one.key.empty()) return corrupt("a key is missing");
        if (!one.key.starts_with(prefix))
            return corrupt("it holds the key " + one.key + ", which does not begin as was asked");
        if (one.key <= last) return corrupt("it holds the key " + one.key + " behind " + last);
        last = one.key;
    }
    return std::move(walk.listing);
}

std::int64_t parse_timestamp(std::string_view text) {
    std::tm utc{};
    const std::string zoned(text);
    const char* rest = ::strptime(zoned.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
    if (rest == nullptr) return -1;
    std::int64_t millis = 0;
    if (*rest == '.') {
        std::int64_t unit = 100;
        for (++rest; *rest >= '0' && *rest <= '9'; ++rest, unit /= 10)
            millis += (*rest - '0') * unit;
    }
    if (std::string_view(rest) != "Z") return -1;
    const std::int64_t seconds = ::timegm(&utc);
    return seconds < 0 ? -1 : seconds * 1000 + millis;
}

}  // namespace hf::s3
