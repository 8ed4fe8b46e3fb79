#include "agent/core/test_actors.hpp"

namespace hf::core::testing {

Actors::Actors(Rig& rig) : rig_(rig) {
    rig.hook = [this](const Action& action) { return take(action); };
}
Actors::~Actors() = default;

std::vector<Deliver> Actors::seen(const std::string& name) const {
    std::vector<Deliver> out;
    for (const auto& [who, deliver] : seen_)
        if (who == name) out.push_back(deliver);
    return out;
}

DeliveredIn Actors::calls(const Deliver& deliver, const std::string& target) {
    DeliveredIn answer = Rig::delivered(deliver);
    answer.changes.clear();
    answer.reply_status = 0;
    answer.status = DeliverStatus::Calling;
    answer.call = CallWish{1, target, "ask", {7}, 0};
    return answer;
}

DeliveredIn Actors::finished(const Resume& resume) {
    DeliveredIn answer;
    answer.from = resume.to;
    answer.op = resume.op;
    answer.activation = resume.activation;
    answer.status = DeliverStatus::Ok;
    answer.reply_status = 200;
    answer.changes = {2};
    return answer;
}

bool Actors::take(const Action& action) {
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

}  // namespace hf::core::testing
