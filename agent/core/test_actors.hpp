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

    explicit Actors(Rig& rig) : rig_(rig) {
        rig.hook = [this](const Action& action) { return take(action); };
    }
    void on(const std::string& name, Handler handler) { handlers_[name] = std::move(handler); }
    std::vector<Deliver> seen(const std::string& name) const {
        std::vector<Deliver> out;
        for (const auto& [who, deliver] : seen_)
            if (who == name) out.push_back(deliver);
        return out;
    }
    std::vector<Resume> resumed;
    std::function<bool(const StoreRequest&)> store;  // true: kept from the store
    std::vector<StoreRequest> requests;
    std::function<bool(const Action&)> others;  // whatever else; true: taken care of

    // The event asks for a call and waits.
    static DeliveredIn calls(const Deliver& deliver, const std::string& target) {
        DeliveredIn answer = Rig::delivered(deliver);
        answer.changes.clear();
        answer.reply_status = 0;
        answer.status = DeliverStatus::Calling;
        answer.call = CallWish{1, target, "ask", {7}, 0};
        return answer;
    }
    // The end of an event that went on with Resume.
    static DeliveredIn finished(const Resume& resume) {
        DeliveredIn answer;
        answer.from = resume.to;
        answer.op = resume.op;
        answer.activation = resume.activation;
        answer.status = DeliverStatus::Ok;
        answer.reply_status = 200;
        answer.changes = {2};
        return answer;
    }

private:
    bool take(const Action& action) {
        if (const auto* activate = std::get_if<Activate>(&action))
            names_[activate->activation] = activate->name;
        if (const auto* request = std::get_if<StoreRequest>(&action)) {
            requests.push_back(*request);
            return store && store(*request);
        }
        if (const auto* resume = std::get_if<Resume>(&action)) {
            resumed.push_back(*resume);
            rig_.feed(finished(*resume));
            return true;
        }
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr) return others && others(action);
        const std::string name = names_[deliver->activation];
        seen_.emplace_back(name, *deliver);
        const auto handler = handlers_.find(name);
        if (handler == handlers_.end()) return false;
        if (auto answer = handler->second(*deliver, Rig::delivered(*deliver)))
            rig_.feed(std::move(*answer));
        return true;
    }
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
