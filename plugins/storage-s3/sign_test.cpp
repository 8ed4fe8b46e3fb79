// The signature against the values that AWS publishes, and the canonical forms' corners.
#include "plugins/storage-s3/sign.hpp"

#include <doctest/doctest.h>

namespace hf::s3 {
namespace {

// "Authenticating Requests: Using the Authorization Header", the examples of the S3 reference.
const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", {}};
constexpr std::int64_t kExampleTime = 1'369'353'600;  // 2013-05-24T00:00:00Z
constexpr const char* kExampleHost = "examplebucket.s3.amazonaws.com";

ToSign example(const std::string& method, const std::string& path, std::string_view body = "") {
    ToSign out;
    out.method = method;
    out.path = path;
    out.payload = sha256_hex(as_bytes(body));
    out.headers = {{"host", kExampleHost},
                   {"x-amz-date", amz_date(kExampleTime)},
                   {"x-amz-content-sha256", out.payload}};
    return out;
}

std::string signature(const ToSign& request) {
    Signer signer(kExample, "us-east-1");
    const std::string header = signer.authorization(request, kExampleTime);
    return header.substr(header.rfind('=') + 1);
}

}  // namespace

TEST_CASE("the published examples are signed as published") {
    ToSign get = example("GET", "/test.txt");
    get.headers.emplace_back("range", "bytes=0-9");
    CHECK(sha256_hex(as_bytes(canonical_request(get))) ==
          "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
    CHECK(signature(get) == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    Signer signer(kExample, "us-east-1");
    CHECK(signer.authorization(get, kExampleTime) ==
          "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
          "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
          "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

    ToSign put =
        example("PUT", "/" + percent_encoded("test$file.text", true), "Welcome to Amazon S3.");
    put.headers.emplace_back("date", "Fri, 24 May 2013 00:00:00 GMT");
    put.headers.emplace_back("x-amz-storage-class", "REDUCED_REDUNDANCY");
    CHECK(signature(put) == "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");

    ToSign lifecycle = example("GET", "/");
    lifecycle.query = canonical_query({{"lifecycle", ""}});
    CHECK(signature(lifecycle) ==
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");

    ToSign list = example("GET", "/");
    list.query = canonical_query({{"prefix", "J"}, {"max-keys", "2"}});
    CHECK(signature(list) == "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("the day's key is made anew for another day") {
    Signer one(kExample, "us-east-1");
    const ToSign request = example("GET", "/test.txt");
    const std::string today = one.authorization(request, kExampleTime);
    const std::string tomorrow = one.authorization(request, kExampleTime + 86'400);
    CHECK(today != tomorrow);
    CHECK(one.authorization(request, kExampleTime) == today);
    CHECK(Signer(kExample, "eu-west-1").authorization(request, kExampleTime) != today);
}

TEST_CASE("paths are encoded byte by byte and once") {
    CHECK(percent_encoded("a/b", true) == "a/b");
    CHECK(percent_encoded("a/b", false) == "a%2Fb");
    CHECK(percent_encoded("-._~AZaz09", false) == "-._~AZaz09");
    CHECK(percent_encoded("a b+c=d&e%2Ff", true) == "a%20b%2Bc%3Dd%26e%252Ff");
    CHECK(percent_encoded("\xC3\xBC", true) == "%C3%BC");
    CHECK(percent_encoded("a//b/../c", true) == "a//b/../c");  // no part is folded away
    CHECK(percent_encoded(std::string_view("\0\xFF", 2), true) == "%00%FF");
    std::string back;
    for (const std::string text : {"a b+c=d&e%2Ff", "\xC3\xBC", "", "%"}) {
        CHECK(percent_decoded(percent_encoded(text, false), back));
        CHECK(back == text);
    }
    CHECK(percent_decoded("a+b%2f", back));
    CHECK(back == "a b/");
    for (const char* broken : {"%", "%4", "%zz", "a%2"}) CHECK_FALSE(percent_decoded(broken, back));
}

TEST_CASE("queries are sorted as they are encoded") {
    CHECK(canonical_query({}).empty());
    CHECK(canonical_query({{"uploads", ""}}) == "uploads=");
    CHECK(canonical_query({{"prefix", "a/b c"}, {"list-type", "2"}}) ==
          "list-type=2&prefix=a%2Fb%20c");
    // By the encoded bytes: %C3 comes before b.
    CHECK(canonical_query({{"b", "1"}, {"\xC3\xBC", "2"}, {"a", "2"}, {"a", "1"}}) ==
          "%C3%BC=2&a=1&a=2&b=1");
}

TEST_CASE("headers are trimmed, sorted and of one line") {
    ToSign request = example("PUT", "/k");
    request.headers = {{"x-amz-date", "d"}, {"host", "h:9000"}, {"if-match", "  \"a  b\"\t "}};
    const std::string text = canonical_request(request);
    CHECK(
        text.find("\nhost:h:9000\nif-match:\"a b\"\nx-amz-date:d\n\nhost;if-match;x-amz-date\n") !=
        std::string::npos);
}

TEST_CASE("dates are UTC") {
    CHECK(amz_date(0) == "19700101T000000Z");
    CHECK(amz_date(kExampleTime) == "20130524T000000Z");
    CHECK(amz_date(951'827'696) == "20000229T123456Z");
}

}  // namespace hf::s3
