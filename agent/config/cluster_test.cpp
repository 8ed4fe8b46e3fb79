// What agent.toml says of several nodes on one store: leases, addresses, the secret.
#include <doctest/doctest.h>

#include "agent/config/test_file.hpp"

using namespace hf::config;
using namespace hf::config::test;
using namespace std::chrono_literals;

namespace {

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// The three tables with something in [node] and something in [plugin.gateway].
std::string file(const std::string& node, const std::string& gateway = {}) {
    return "[node]\n" + node + "\n[plugin.gateway]\nuse = \"gateway-http\"\n" + gateway +
           "\n[plugin.storage]\nuse = \"storage-local\"\n[plugin.runtime]\nuse = "
           "\"runtime-wasm\"\n";
}

Config good(const std::string& text) {
    Checked checked = check_text(text);
    for (const Problem& problem : checked.problems) MESSAGE(problem.text());
    REQUIRE(checked.config);
    return std::move(*checked.config);
}

// One complaint with those words.
void refused(const std::string& text, std::initializer_list<std::string_view> words) {
    const std::string got = complaints(text);
    CAPTURE(got);
    CHECK(got.find('\n') + 1 == got.size());
    for (const std::string_view word : words) CHECK_MESSAGE(has(got, word), word);
}

}  // namespace

TEST_CASE("the_parts_of_a_lease_scale_with_it") {
    const Config config = good(file("lease = \"10s\""));
    CHECK(config.node.lease.ttl == 10s);
    CHECK(config.node.lease.renew == 3s);
    CHECK(config.node.lease.grace == 2s);
    CHECK(config.node.lease.poll == 1500ms);
    const Config shortest = good(file("lease = \"3s\""));
    CHECK(shortest.node.lease.renew == 900ms);
    CHECK(shortest.node.lease.grace == 600ms);
    CHECK(shortest.node.lease.poll == 450ms);
    const Config own = good(
        file("lease = \"6s\"\nlease_renew = \"2s\"\nlease_grace = \"100ms\"\nlease_poll = \"6s\""));
    CHECK(own.node.lease.renew == 2s);
    CHECK(own.node.lease.grace == 100ms);
    CHECK(own.node.lease.poll == 6s);
}

TEST_CASE("a_lease_that_its_renewals_do_not_fit_into_is_refused") {
    refused(file("lease = \"2999ms\""),
            {"2:9: ", "'node.lease' must be \"none\" or a duration from 3s to 5m", "out of range"});
    refused(file("lease = \"301s\""), {"out of range"});
    refused(file("lease = \"None\""), {"is not a number with a unit"});
    refused(file("lease = 10"), {"\"none\" or a duration", "the number 10"});
    refused(file("lease = \"6s\"\nlease_renew = \"2001ms\""),
            {"3:15: 'node.lease_renew' (2001ms) must be at most a third of the lease (6s)"});
    refused(file("lease = \"6s\"\nlease_poll = \"7s\""),
            {"must not be longer than the lease (6s)"});
    refused(file("lease = \"6s\"\nlease_grace = \"99ms\""), {"from 100ms to 5m"});
    refused(file("lease_renew = \"1s\""),
            {"2:15: 'node.lease_renew' means nothing without a lease"});
    refused(file("lease = \"none\"\nlease_poll = \"1s\""), {"means nothing without a lease"});
}

TEST_CASE("a_bucket_at_an_s3_store_is_refused_without_a_lease") {
    const auto s3 = [](const std::string& node) {
        return "[node]\n" + node +
               "\n[plugin.gateway]\nuse = \"gateway-http\"\n[plugin.runtime]\nuse = "
               "\"runtime-wasm\"\n[plugin.storage]\nuse = \"storage-s3\"\nbucket = \"b-1\"\n";
    };
    refused(s3("lease = \"none\""), {"2:9: ", "storage-s3 always has a lease"});
    refused(s3(""), {"7:", "'node.lease' must be a duration", "storage-s3 always has a lease"});
    CHECK(complaints(s3("lease = \"10s\"")).empty());
}

TEST_CASE("others_are_told_an_address_that_they_can_reach") {
    const auto told = [](const std::string& address) {
        return file("lease = \"10s\"\nadvertise = \"" + address + "\"",
                    "listen = \"0.0.0.0:8080\"");
    };
    CHECK(good(told("10.0.0.7:8080")).node.advertise == "10.0.0.7:8080");
    CHECK(good(told("[FD00::1]:8080")).node.advertise == "[fd00::1]:8080");
    CHECK(good(told("node-1.example:80")).node.advertise == "node-1.example:80");
    CHECK(good(told("node1:80")).node.advertise == "node1:80");
    for (const char* bad : {"node-1",
                            "node-1:0",
                            "node-1:65536",
                            "10.0.0:80",
                            "10.0.0.256:80",
                            "-a:80",
                            "a..b:80",
                            "a b:80",
                            ":80",
                            "http://a:80",
                            "fd00::1:80",
                            "[fd00::g]:80",
                            "0.0.0.0:80",
                            "[::]:80"})
        refused(told(bad), {"3:13: 'node.advertise' must be an address that other nodes reach"});
    for (const char* listen : {"0.0.0.0:8080", "[::]:8080"})
        refused(file("lease = \"10s\"", "listen = \"" + std::string(listen) + "\""),
                {"'node.advertise' is missing", listen, "every address of this machine"});
    CHECK(complaints(file("", "listen = \"0.0.0.0:8080\"")).empty());  // alone, nobody is told
    // With a socket for other nodes it is that one that counts.
    CHECK(complaints(file("lease = \"10s\"",
                          "listen = \"0.0.0.0:8080\"\ncluster_listen = \"10.0.0.7:9\"\n"
                          "peer_secret_file = \"/s\""))
              .empty());
    refused(file("lease = \"10s\"", "cluster_listen = \"0.0.0.0:9\"\npeer_secret_file = \"/s\""),
            {"'node.advertise' is missing", "0.0.0.0:9"});
}

TEST_CASE("what_is_between_nodes_needs_several_of_them_and_a_secret") {
    const Config config = good(
        file("lease = \"10s\"", "cluster_listen = \"127.0.0.1:0\"\npeer_secret_file = \"secret\""));
    const PluginConfig& gateway = *config.plugin(Slot::Gateway);
    REQUIRE(gateway.cluster_listen);
    CHECK(*gateway.cluster_listen == Endpoint{"127.0.0.1", 0});
    CHECK(gateway.setting("cluster_listen") == "127.0.0.1:0");
    CHECK(gateway.setting("peer_secret_file") == (config.file.parent_path() / "secret").string());
    CHECK(gateway.setting("peer_connections") == "16");
    CHECK(gateway.setting("peer_connect_timeout") == "1000");

    refused(file("lease = \"10s\"", "cluster_listen = \"127.0.0.1:9\""),
            {"'plugin.gateway.cluster_listen' needs peer_secret_file"});
    refused(file("lease = \"10s\"",
                 "cluster_listen = [\"127.0.0.1:9\", \"127.0.0.1:10\"]\npeer_secret_file = \"/s\""),
            {"must be one address, not a list"});
    refused(file("lease = \"10s\"",
                 "cluster_listen = \"127.0.0.1:9,127.0.0.1:10\"\npeer_secret_file = \"/s\""),
            {"must be one address, not a list"});
    refused(
        file("lease = \"10s\"", "cluster_listen = \"127.0.0.1:8080\"\npeer_secret_file = \"/s\""),
        {"(127.0.0.1:8080) must not be one of listen"});
    const std::string tls =
        "tls_certificate = \"/c\"\ntls_key = \"/k\"\npeer_secret_file = \"/s\"\n";
    refused(file("lease = \"10s\"", tls),
            {"'plugin.gateway.peer_secret_file' needs cluster_listen where listen speaks TLS"});
    CHECK(complaints(file("lease = \"10s\"", tls + "cluster_listen = \"127.0.0.1:9\"")).empty());
    refused(file("", "peer_secret_file = \"/s\""),
            {"'plugin.gateway.peer_secret_file' means nothing without a lease"});
    refused(file("", "cluster_listen = \"127.0.0.1:9\""),
            {"'plugin.gateway.cluster_listen' means nothing without a lease"});
    refused(file("advertise = \"a:80\""), {"2:13: 'node.advertise' means nothing without a lease"});
}
