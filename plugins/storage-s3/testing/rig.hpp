// A bucket over the small S3 of store.hpp, driven by hand.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "abi/base/clock.hpp"
#include "plugins/storage-s3/bucket.hpp"
#include "plugins/storage-s3/testing/store.hpp"

namespace hf::s3::testing {

class Rig {
public:
    using Given = std::vector<std::pair<std::string_view, std::string_view>>;

    explicit Rig(const Store& store, Given given = {}) : Rig(store.endpoint(), std::move(given)) {}
    Rig(const std::string& endpoint, Given given) {
        given.emplace_back("bucket", "bucket");
        given.emplace_back("endpoint", endpoint);
        const auto read = read_settings(given);
        REQUIRE_MESSAGE(read.ok(), read.error().message);
        settings = *read;
        loop = std::move(Loop::create()).value();
        http = std::move(
                   Http::create(*loop, {settings.connections_max, settings.connect_timeout_ms, {}}))
                   .value();
        client = std::make_unique<Client>(
            *http, settings, Credentials{"key", "secret", {}}, [this](const std::string& words) {
                said += words;
            });
        env = std::make_unique<Env>(Env{*loop, *client, settings});
        bucket = std::make_unique<Bucket>(*env);
    }

    // Runs until `done`, a generous while at most.
    template <class Done>
    bool until(const Done& done) {
        const std::int64_t end = monotonic_ns() + 30'000'000'000;
        while (!done()) {
            if (monotonic_ns() > end) return false;
            loop->wait(1000);
        }
        return true;
    }

    PutResult put(PutCall call) {
        PutResult out;
        bool answered = false;
        bucket->put(std::move(call), [&](PutResult& result) {
            out = std::move(result);
            answered = true;
        });
        REQUIRE(until([&] { return answered; }));
        return out;
    }
    GetResult get(const std::string& key) {
        GetResult out;
        bool answered = false;
        bucket->get(key, [&](GetResult& result) {
            out = std::move(result);
            answered = true;
        });
        REQUIRE(until([&] { return answered; }));
        return out;
    }
    DeleteResult erase(DeleteCall call) {
        DeleteResult out;
        bool answered = false;
        bucket->erase(std::move(call), [&](DeleteResult& result) {
            out = std::move(result);
            answered = true;
        });
        REQUIRE(until([&] { return answered; }));
        return out;
    }
    ListResult list(ListCall call) {
        ListResult out;
        bool answered = false;
        bucket->list(std::move(call), [&](ListResult& result) {
            out = std::move(result);
            answered = true;
        });
        REQUIRE(until([&] { return answered; }));
        return out;
    }

    Settings settings;
    std::string said;
    std::unique_ptr<Loop> loop;
    std::unique_ptr<Http> http;
    std::unique_ptr<Client> client;
    std::unique_ptr<Env> env;
    std::unique_ptr<Bucket> bucket;
};

}  // namespace hf::s3::testing
