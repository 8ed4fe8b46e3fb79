// Requests on their way to the supervisor and back. Responsible for their bound, for keeping those that found no credit in
// order, and for tokens that outlive their connection: the answer to a request whose client is gone, or was told 504, still
// comes, and is dropped here.
// If the supervisor dies the process ends with it; if this process dies every request of it is answered by nobody
// (replay: never), and the successor starts with none.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/check.hpp"
#include "abi/sdk/plugin.hpp"

namespace hf::gateway {

// What is to be asked: an actor's event, or a page when `page` is set.
struct Draft {
    Bytes event;
    std::size_t head_bytes = 0;  // of the event, as begin_event left it
    std::string class_name;
    std::string name;
    std::string client;
    std::string_view page;  // a literal
    std::int64_t deadline_ns = 0;
};

// Who waits for an answer.
class Asker {
public:
    virtual void answered(const abi::Reply& reply) = 0;
    virtual void answered(const abi::Queried& queried) = 0;

protected:
    Asker() = default;
    ~Asker() = default;

private:
    friend class Requests;
    std::uint64_t request_id_ = 0;  // 0: none in the ring
    bool queued_ = false;           // waits for credit
};

class Requests {
public:
    Requests(std::size_t open_max, sdk::Context& context);

    // Takes one of the places; false: all are taken. A place is held from here until the answer, or give_back().
    [[nodiscard]] bool take_place();
    void give_back() {
        HF_CHECK(open_ > 0, "a place is given back once");
        --open_;
    }
    [[nodiscard]] std::size_t open() const { return open_; }

    // A draft with all fields cleared; its buffers come from earlier ones.
    std::unique_ptr<Draft> new_draft();
    void drop_draft(std::unique_ptr<Draft> draft);
    // For a request that is asked at once.
    Draft& scratch() { return *scratch_; }

    // Asks, or queues when there is no credit. The asker holds a place, which goes over to the request. `draft` may be
    // scratch(); it is empty afterwards.
    void ask(Asker& asker, Draft& draft);
    // True: it has not been asked yet, so nothing has taken effect.
    [[nodiscard]] static bool is_queued(const Asker& asker) { return asker.queued_; }
    // The asker does not wait any longer. `tell`: the supervisor hears that the client is gone.
    void leave(Asker& asker, bool tell);
    // The client may be gone, but the asker still waits.
    void tell_gone(const Asker& asker);

    // False: nobody waits for this answer.
    bool answer(const sdk::Message& message);
    // Credit may have come: asks what is queued.
    void retry();

private:
    struct Queued {
        Asker* asker;
        std::unique_ptr<Draft> draft;
    };
    [[nodiscard]] Result<std::uint64_t> send(const Draft& draft);
    void sent(Asker& asker, std::uint64_t id);

    sdk::Context& context_;
    std::size_t open_max_;
    std::size_t open_ = 0;
    // A pool: once as many nodes were made as requests are ever open, asking allocates nothing.
    std::pmr::unsynchronized_pool_resource pool_;
    std::pmr::unordered_map<std::uint64_t, Asker*> asked_;
    std::deque<Queued> queue_;
    std::unique_ptr<Draft> scratch_;
    std::vector<std::unique_ptr<Draft>> spare_;
};

}  // namespace hf::gateway
