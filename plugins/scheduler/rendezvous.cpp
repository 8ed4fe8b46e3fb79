#include "plugins/scheduler/rendezvous.hpp"

#include "plugins/scheduler/eligible.hpp"

namespace hf::scheduler {

Result<void> Rendezvous::configure(const sdk::Settings& settings) {
    return refuse_settings("rendezvous", settings);
}

sdk::PlaceOutcome Rendezvous::place(const sdk::PlaceView& want) {
    Eligible eligible(want);
    if (eligible.empty()) return eligible.nobody();
    return eligible.chosen(strongest(want.subject, eligible.all()));
}

}  // namespace hf::scheduler
