// Actors with a script each, around a Rig. For tests only.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/test_rig.hpp"

namespace hf::core::testing {

// Delivers what a test's script makes of each event, by the actor's name; without one the event succeeds with a change.
class Actors {
public:
    using Handler = std::function<std::optional<DeliveredIn>(const Deliver&, DeliveredIn)>;

    explicit Actors(Rig& rig);
    ~Actors();
    Actors(const Actors&) = delete;
    Actors& operator=(const Actors&) = delete;
    void on(const std::string& name, Handler handler) { handlers_[name] = std::move(handler); }
    std::vector<Deliver> seen(const std::string& name) const;
    std::vector<Resume> resumed;
    std::function<bool(const StoreRequest&)> store;  // true: kept from the store
    std::vector<StoreRequest> requests;
    std::function<bool(const Action&)> others;  // whatever else; true: taken care of

    // The event asks for a call and waits.
    static DeliveredIn calls(const Deliver& deliver, const std::string& target);
    // The end of an event that went on with Resume.
    static DeliveredIn finished(const Resume& resume);

private:
    bool take(const Action& action);
    Rig& rig_;
    std::map<std::string, Handler> handlers_;
    std::map<std::uint64_t, std::string> names_;
    std::vector<std::pair<std::string, Deliver>> seen_;
};

inline bool is_alarm_key(const std::string& key) {
    return key.find("/alarms/") != std::string::npos;
}
inline bool is_entry_of(const StoreRequest& request, const std::string& name) {
    return request.verb == StoreVerb::Put && request.key.find("/log/actor/") != std::string::npos &&
           request.key.find("/" + name + "/") != std::string::npos;
}

}  // namespace hf::core::testing
