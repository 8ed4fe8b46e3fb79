// A bucket with conditional writes, as the storage contract states them. It outlives every node that uses it, knows no
// delay and no fault (those are the storage instances' business), and tells a watcher of each change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"

namespace hf::sim {

struct Object {
    Bytes body;
    std::string etag;
    core::WriteId write_id;
    std::int64_t modified_ms = 0;
};

class Bucket {
public:
    // `by`: the node that asked for it.
    struct Watcher {
        std::function<void(const std::string& key, const Object& object, std::size_t by)> written;
        std::function<void(const std::string& key, const Object& was)> deleted;
    };
    void watch(Watcher watcher) { watcher_ = std::move(watcher); }
    // The store's own clock, Unix ms.
    void set_clock(std::function<std::int64_t()> clock) { clock_ = std::move(clock); }

    // Carries `request` of node `by` out and fills outcome, body, etag, write id, times and listing of `answer`.
    void serve(const core::StoreRequest& request,
               std::size_t by,
               bool disk_full,
               core::StoreAnswer& answer);
    [[nodiscard]] const std::map<std::string, Object>& objects() const { return objects_; }

private:
    bool erase(const std::string& key);
    void put(const core::StoreRequest& request,
             std::size_t by,
             bool disk_full,
             core::StoreAnswer& answer);
    void list(const core::StoreRequest& request, core::StoreAnswer& answer) const;

    std::map<std::string, Object> objects_;
    std::uint64_t versions_ = 0;
    Watcher watcher_;
    std::function<std::int64_t()> clock_;
};

}  // namespace hf::sim
