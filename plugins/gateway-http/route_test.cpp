#include "plugins/gateway-http/route.hpp"

#include <doctest/doctest.h>

#include <string>

namespace hf::gateway {

namespace {

// "actor <class> <name> <path><query>", "page <page>", "options" or "<status>".
std::string where(Method method, std::string_view target) {
    TargetParts parts;
    if (!split_target(target, parts)) return "bad target";
    Route route;
    find_route(method, parts, "default", route);
    switch (route.kind) {
        case RouteKind::Actor:
            return "actor " + route.class_name + " " + route.name + " " + std::string(route.path) +
                   std::string(route.query);
        case RouteKind::Page:
            return "page " + std::string(route.page);
        case RouteKind::Options:
            return "options";
        case RouteKind::Refused:
            break;
    }
    CHECK_FALSE(route.text.empty());
    CHECK((route.status == 405) == !route.allow.empty());
    return std::to_string(route.status);
}

std::string where(std::string_view target) {
    return where(Method::Get, target);
}

}  // namespace

TEST_CASE("actors are found by class and name, which may be any bytes") {
    CHECK(where("/actor/counter/alice") == "actor counter alice /");
    CHECK(where("/actor/counter/alice/") == "actor counter alice /");
    CHECK(where("/actor/counter/alice/a/b%20c?d=e") == "actor counter alice /a/b%20c?d=e");
    CHECK(where("/actor/counter/alice?d=/e") == "actor counter alice /?d=/e");
    CHECK(where("/actor/counter/a%2Fb%25") == "actor counter a/b% /");
    CHECK(where("/actor/counter/a+b") == "actor counter a+b /");
    CHECK(where("/actor/counter/..") == "actor counter .. /");
    CHECK(where("/actor/counter/%00") == std::string("actor counter ") + '\0' + " /");
    CHECK(where("/actor/counter/%C3%BC/") == "actor counter \xC3\xBC /");
    CHECK(where("/actor/%63ounter/alice") == "actor counter alice /");
    CHECK(where("/actor/counter/a//b") == "actor counter a //b");
    CHECK(where("http://h:1/actor/c/n?q") == "actor c n /?q");
    CHECK(where("HTTPS://h/actor/c/n") == "actor c n /");
}

TEST_CASE("paths that name nothing are refused") {
    CHECK(where("/") == "404");
    CHECK(where("/actor") == "404");
    CHECK(where("/actor/") == "404");
    CHECK(where("/actor/counter") == "404");
    CHECK(where("/actor/counter/") == "400");
    CHECK(where("/actor//alice") == "400");
    CHECK(where("/actor/counter/a%2") == "400");
    CHECK(where("/actor/counter/a%zz") == "400");
    CHECK(where("/actor/count%/a") == "400");
    CHECK(where("/Actor/counter/a") == "404");
    CHECK(where("http://h") == "404");
    CHECK(where("http:///x") == "bad target");
    CHECK(where("http://u:p@h/x") == "bad target");
    CHECK(where("ftp://h/x") == "bad target");
    CHECK(where("h:80") == "bad target");
    CHECK(where("/a#b") == "bad target");
}

TEST_CASE("a unit longer than its key may be is refused at the door") {
    // "actor/default/c/" is 16 bytes of the 400.
    CHECK(where("/actor/c/" + std::string(384, 'a')).starts_with("actor"));
    CHECK(where("/actor/c/" + std::string(385, 'a')) == "400");
    CHECK(where("/actor/c/" + std::string(128, '.')).starts_with("actor"));
    CHECK(where("/actor/c/" + std::string(129, '.')) == "400");
}

TEST_CASE("pages can be read, nothing else") {
    CHECK(where("/healthz") == "page healthz");
    CHECK(where(Method::Head, "/readyz?verbose") == "page readyz");
    CHECK(where("/metrics") == "page metrics");
    CHECK(where("/metrics/") == "404");
    CHECK(where(Method::Post, "/healthz") == "405");
}

TEST_CASE("methods") {
    for (const Method method : {Method::Get,
                                Method::Head,
                                Method::Post,
                                Method::Put,
                                Method::Delete,
                                Method::Patch,
                                Method::Options})
        CHECK(where(method, "/actor/c/n") == "actor c n /");
    CHECK(where(Method::NotAllowed, "/actor/c/n") == "405");
    CHECK(where(Method::Unknown, "/actor/c/n") == "501");
    CHECK(where(Method::Options, "*") == "options");
    CHECK(where(Method::Get, "*") == "400");
}

}  // namespace hf::gateway
