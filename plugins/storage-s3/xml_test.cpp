// Listings and errors as stores write them, and as nobody may.
#include "plugins/storage-s3/xml.hpp"

#include <doctest/doctest.h>

#include "plugins/storage-s3/etag.hpp"

namespace hf::s3 {
namespace {

std::string listing(const std::string& inner, const std::string& truncated = "false") {
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult "
           "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>p/</Prefix>"
           "<MaxKeys>1000</MaxKeys><IsTruncated>" +
           truncated + "</IsTruncated>" + inner + "</ListBucketResult>";
}

std::string contents(const std::string& key, const std::string& etag = "&quot;e&quot;") {
    return "<Contents><Key>" + key +
           "</Key><LastModified>2026-11-30T10:00:00.250Z</LastModified><ETag>" + etag +
           "</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass>" +
           "<Owner><ID>x</ID><DisplayName>y</DisplayName></Owner></Contents>";
}

bool corrupt(const std::string& xml, std::string_view prefix = "p/", std::string_view after = "") {
    const auto read = read_listing(xml, prefix, after);
    return !read && read.error().code == Code::Corrupt;
}

}  // namespace

TEST_CASE("a listing as Ceph writes it") {
    const auto read = read_listing(
        listing(
            "<NextContinuationToken>p/b</NextContinuationToken><EncodingType>url</EncodingType>" +
                contents("p%2Fa%20b%2Bc") + contents("p%2Fb&apos;") + "<KeyCount>2</KeyCount>",
            "true"),
        "p/",
        "");
    REQUIRE(read.ok());
    REQUIRE(read->keys.size() == 2);
    CHECK(read->keys[0].key == "p/a b+c");
    CHECK(read->keys[0].size == 12);
    CHECK(read->keys[0].etag == "\"e\"");
    CHECK(read->keys[0].last_modified_ms == 1'796'032'800'250);
    CHECK(read->keys[1].key == "p/b'");
    CHECK(read->truncated);
    CHECK(read->next_token == "p/b");
}

TEST_CASE("keys are decoded only where the listing says that it encodes them") {
    const auto plain = read_listing(listing(contents("p/50%25 &amp;")), "p/", "");
    REQUIRE(plain.ok());
    CHECK(plain->keys[0].key == "p/50%25 &");
    // AWS writes a space as a plus.
    const auto plus =
        read_listing(listing("<EncodingType>url</EncodingType>" + contents("p/a+b")), "p/", "");
    REQUIRE(plus.ok());
    CHECK(plus->keys[0].key == "p/a b");
    CHECK(corrupt(listing("<EncodingType>url</EncodingType>" + contents("p/%zz"))));
}

TEST_CASE("an empty listing is whole") {
    const auto read = read_listing(listing(""), "p/", "");
    REQUIRE(read.ok());
    CHECK(read->keys.empty());
    CHECK_FALSE(read->truncated);
}

TEST_CASE("a listing that is cut anywhere is none") {
    const std::string whole = listing(contents("p/a") + contents("p/b"));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        CHECK(corrupt(whole.substr(0, size)));
    }
    CHECK(read_listing(whole, "p/", "").ok());
}

TEST_CASE("a listing that was not asked for is none") {
    CHECK(corrupt(listing(contents("p/b") + contents("p/a"))));
    CHECK(corrupt(listing(contents("p/a") + contents("p/a"))));
    CHECK(corrupt(listing(contents("q/a"))));
    CHECK(corrupt(listing(contents("p/a")), "p/", "p/a"));
    CHECK(corrupt(listing(contents("p/a")), "p/", "p/b"));
    CHECK(read_listing(listing(contents("p/b")), "p/", "p/a").ok());
    CHECK(corrupt(listing(contents(""))));
    CHECK(corrupt(listing("<Contents><Size>1</Size></Contents>")));
    CHECK(corrupt(listing("<Contents><Key>p/a</Key><Size>-1</Size></Contents>")));
    CHECK(corrupt(listing("<Contents><Key>p/a</Key><LastModified>now</LastModified></Contents>")));
    CHECK(corrupt(listing(contents("p/a"), "maybe")));
    CHECK(corrupt("<ListBucketResult></ListBucketResult>"));
    CHECK(corrupt("<Error><Code>SlowDown</Code></Error>"));
    CHECK(corrupt("<html><body>It works!</body></html>"));
    CHECK(corrupt(""));
}

TEST_CASE("what a parser could be hurt by is refused") {
    CHECK(corrupt("<!DOCTYPE x [<!ENTITY a \"b\">]>" + listing(contents("p/&a;"))));
    std::string deep;
    for (int i = 0; i < 100; ++i) deep += "<a>";
    CHECK(corrupt(deep));
    std::string many;
    for (std::size_t i = 0; i <= kXmlElementsMax; ++i) many += "<a/>";
    CHECK(corrupt(listing(many)));
    CHECK(corrupt(listing(std::string(kXmlBytesMax, ' '))));
}

TEST_CASE("errors tell their code and where the bucket is") {
    const StoreError error = read_error(
        "<?xml version=\"1.0\" "
        "encoding=\"UTF-8\"?>\n<Error><Code>AuthorizationHeaderMalformed</Code>"
        "<Message>the region 'a' is wrong; expecting 'b'</Message><Region>b</Region>"
        "<Endpoint>s3.b.example</Endpoint><RequestId>1</RequestId></Error>");
    CHECK(error.code == "AuthorizationHeaderMalformed");
    CHECK(error.message == "the region 'a' is wrong; expecting 'b'");
    CHECK(error.region == "b");
    CHECK(error.endpoint == "s3.b.example");
    for (const char* none : {"", "<Error><Code>Half", "<html><Code>x</Code></html>", "Bad Gateway"})
        CHECK(read_error(none).code.empty());
}

TEST_CASE("times are UTC with or without a fraction") {
    CHECK(parse_timestamp("1970-01-01T00:00:00Z") == 0);
    CHECK(parse_timestamp("2026-11-30T10:00:00.000Z") == 1'796'032'800'000);
    CHECK(parse_timestamp("2026-11-30T10:00:00.1234567Z") == 1'796'032'800'123);
    for (const char* bad :
         {"", "2026-11-30", "2026-11-30T10:00:00", "2026-11-30T10:00:00+01:00", "x"})
        CHECK(parse_timestamp(bad) == -1);
}

TEST_CASE("entity tags have one form here and the store's own on the wire") {
    CHECK(etag_from_wire("\"a\"") == "\"a\"");
    CHECK(etag_from_wire("a") == "\"a\"");
    CHECK(etag_from_wire("").empty());
    CHECK(etag_to_wire("\"a\"", false) == "\"a\"");
    CHECK(etag_to_wire("\"a\"", true) == "a");
    CHECK(etag_to_wire("\"", true) == "\"");
}

}  // namespace hf::s3
