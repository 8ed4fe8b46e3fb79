#include "plugins/runtime-wasm/plugin.hpp"

#include <algorithm>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "plugins/runtime-wasm/answer.hpp"
#include "plugins/runtime-wasm/serve/large_state.hpp"
#include "plugins/runtime-wasm/settings.hpp"

namespace hf::wasm {

namespace {

// What a class gets that says nothing: the same as agent.toml's defaults.
constexpr std::uint32_t kPagesDefault = 256;  // 16 MiB
constexpr std::uint32_t kPagesMost = 65'535;  // a guest memory's size is a u32 in bytes
constexpr std::int64_t kCpuUsDefault = 100'000;
constexpr std::int64_t kWallUsDefault = 5'000'000;

// The CPU timer's tick decides how late a deadline may be: a 25th of the shortest limit, but the kernel looks at such
// timers only some 250 times a second, and beyond 20 ms nobody would call it on time.
constexpr std::int64_t kTickPart = 25;
constexpr std::int64_t kTickNsMin = 1'000'000;
constexpr std::int64_t kTickNsMax = 20'000'000;

constexpr std::int64_t kCountersEveryNs = 1'000'000'000;

BytesView bytes_of(const flatbuffers::Vector<std::uint8_t>* vector) {
    return vector == nullptr ? BytesView() : BytesView(vector->data(), vector->size());
}

std::string_view text_of(const flatbuffers::String* text) {
    return text == nullptr ? std::string_view() : std::string_view(text->data(), text->size());
}

EventName name_of(const abi::EventId* id) {
    return id == nullptr ? EventName{} : EventName{id->incarnation(), id->counter()};
}

std::int64_t or_default(std::uint32_t value, std::int64_t standard) {
    return value == 0 ? standard : std::int64_t{value};
}

std::int64_t tick_ns(const abi::Configure& configure) {
    std::int64_t shortest = kCpuUsDefault;
    if (configure.modules() != nullptr)
        for (const abi::Module* module : *configure.modules())
            shortest = std::min(shortest, or_default(module->cpu_limit_us(), kCpuUsDefault));
    return std::clamp(shortest * 1000 / kTickPart, kTickNsMin, kTickNsMax);
}

}  // namespace

sdk::Identity RuntimeWasm::identity() const {
    return {abi::Kind::Runtime, "runtime-wasm", HF_VERSION, {}, {}};
}

Result<void> RuntimeWasm::configure(const abi::Configure& configure, sdk::Context& context) {
    context_ = &context;
    std::vector<std::pair<std::string_view, std::string_view>> pairs;
    if (configure.settings() != nullptr)
        for (const abi::Setting* setting : *configure.settings())
            pairs.emplace_back(text_of(setting->key()), text_of(setting->value()));
    HF_ASSIGN(const Settings settings, read_settings(pairs));

    fill_engine_calls(host_);
    fill_guest_calls(host_);
    HF_ASSIGN(worker_, Worker::create(tick_ns(configure), settings.parked_events_max));
    // One more than units: loading a module takes a slot for a moment.
    pool_ = std::make_unique<SlotPool>(settings.resident_units_max + 1);
    residents_ = std::make_unique<Residents>(*worker_, *pool_, settings.resident_units_max);
    if (configure.modules() != nullptr)
        for (const abi::Module* module : *configure.modules()) {
            const ActorClass& loaded = load_class(*module);
            if (module->must_load() && !loaded.broken.empty())
                return fail(Code::Refused, "class " + loaded.name + ": " + loaded.broken);
        }
    // Not before: a module is instantiated in one go, however long this process waits for its turn meanwhile.
    const std::int64_t slice_ns = static_cast<std::int64_t>(settings.slice_us) * 1'000;
    worker_->preempt_after(slice_ns == 0 ? 0 : std::max(slice_ns, kSliceNsMin));
    return {};
}

// A module that cannot be used takes only its own class down: it answers each activation with the reason.
const ActorClass& RuntimeWasm::load_class(const abi::Module& wanted) {
    ActorClass& actor_class = classes_[std::string(text_of(wanted.class_name()))];
    actor_class = ActorClass{};
    actor_class.name = text_of(wanted.class_name());
    actor_class.hash = text_of(wanted.hash());
    actor_class.state_max = wanted.state_bytes_max();
    actor_class.pages_max = std::min(
        wanted.memory_pages_max() == 0 ? kPagesDefault : wanted.memory_pages_max(), kPagesMost);
    if (wanted.body_bytes_max() != 0)
        actor_class.body_max = std::min(wanted.body_bytes_max(), kLargeBodyBytesMax);
    actor_class.deadlines = {or_default(wanted.cpu_limit_us(), kCpuUsDefault) * 1000,
                             or_default(wanted.wall_limit_us(), kWallUsDefault) * 1000};
    const auto broken = [&](std::string why) -> const ActorClass& {
        actor_class.broken = std::move(why);
        context_->log(abi::LogLevel::Error,
                      "class " + actor_class.name + ": " + actor_class.broken);
        return actor_class;
    };
    const std::string vouched(text_of(wanted.meta_sha256()));
    if (vouched.empty()) return broken("the supervisor does not vouch for its module");

    const auto known = std::find_if(modules_.begin(), modules_.end(), [&](const auto& each) {
        return each.first == actor_class.hash || each.second.meta.wasm_sha256 == actor_class.hash;
    });
    LoadedModule* module = known == modules_.end() ? nullptr : &known->second;
    if (module == nullptr) {
        auto loaded = load_module(std::string(text_of(wanted.file())),
                                  actor_class.hash,
                                  host_,
                                  *worker_,
                                  *pool_,
                                  vouched);
        if (!loaded) return broken(loaded.error().message);
        const std::string key = loaded->meta.key;
        module = &modules_.emplace(key, std::move(loaded).value()).first->second;
    }
    if (module->program->image().pages > actor_class.pages_max)
        return broken("memory_max is " + std::to_string(actor_class.pages_max) +
                      " pages of 64 KiB, the module starts with " +
                      std::to_string(module->program->image().pages));
    actor_class.program = module->program.get();
    return actor_class;
}

void RuntimeWasm::handle(const sdk::Message& message) {
    auto& fbb = context_->builder();
    switch (message.type) {
        case abi::Body::Prepare:
            return prepare(message);
        case abi::Body::Activate:
            return activate(message);
        case abi::Body::Deliver:
            return deliver(message);
        case abi::Body::Resume:
            return resume(message);
        case abi::Body::Checkpoint:
            return checkpoint(message);
        case abi::Body::Quiesce: {
            // Between two messages every unit is quiescent but those whose event waits.
            const std::uint64_t activation = message.as<abi::Quiesce>().activation();
            context_->reply(message.req_id,
                            abi::CreateQuiesced(fbb, activation, !residents_->waiting(activation)));
            return;
        }
        case abi::Body::Drop:
            residents_->drop(message.as<abi::Drop>().activation());
            context_->reply(message.req_id,
                            abi::CreateDropped(fbb, message.as<abi::Drop>().activation()));
            return;
        default:
            return;
    }
}

void RuntimeWasm::prepare(const sdk::Message& message) {
    const abi::Module& wanted = *message.as<abi::Prepare>().module_();
    const auto found = classes_.find(text_of(wanted.class_name()));
    std::string why;
    if (found == classes_.end() || found->second.hash != text_of(wanted.hash()))
        why = "this process loads code only while it starts: a new module needs a new instance";
    else
        why = found->second.broken;
    auto& fbb = context_->builder();
    const auto error = error_in(fbb, why);
    context_->reply(message.req_id, abi::CreatePrepared(fbb, why.empty(), error));
}

// `large`: the changes of its one entry, when no record holds them.
Result<void> RuntimeWasm::activate_piece(const abi::Activate& piece, const UniqueFd& large) {
    if (piece.part() == 0) {
        const auto found = classes_.find(text_of(piece.class_name()));
        if (found == classes_.end())
            return fail(
                Code::NotFound,
                "class " + std::string(text_of(piece.class_name())) + " is not configured here");
        HF_TRY(residents_->open(piece.activation(), text_of(piece.unit()), found->second));
    }
    const auto* entries = piece.entries();
    Bytes beside;
    if (large.valid()) {
        if (entries == nullptr || entries->size() != 1)
            return fail(Code::Invalid, "a state came beside a piece that has not one entry");
        HF_ASSIGN(beside, read_state(large, piece.body_bytes()));
    }
    for (unsigned i = 0; entries != nullptr && i < entries->size(); ++i) {
        const abi::StoredChanges* entry = entries->Get(i);
        const BytesView changes = large.valid() ? BytesView(beside) : bytes_of(entry->changes());
        // An entry without changes (an alarm only) says nothing here; a base always says something.
        if (changes.empty() && !entry->base()) continue;
        HF_TRY(residents_->fold(piece.activation(), changes, entry->base()));
    }
    return residents_->part(piece.activation(), piece.part(), !piece.more(), piece.alarm_due_ms());
}

void RuntimeWasm::activate(const sdk::Message& message) {
    const auto& piece = message.as<abi::Activate>();
    const Result<void> done = activate_piece(piece, context_->take_body());
    if (!done) residents_->drop(piece.activation());
    const abi::ActivateStatus status = done ? abi::ActivateStatus::Ok
                                       : done.error().code == Code::Busy
                                           ? abi::ActivateStatus::Full
                                           : abi::ActivateStatus::Failed;
    auto& fbb = context_->builder();
    const auto error =
        done ? flatbuffers::Offset<flatbuffers::String>() : error_in(fbb, done.error().message);
    const bool wants_stop = done && !piece.more() && residents_->wants_stop(piece.activation());
    context_->reply(
        message.req_id,
        abi::CreateActivated(fbb, piece.activation(), piece.part(), status, error, wants_stop));
}

void RuntimeWasm::deliver(const sdk::Message& message) {
    const auto& deliver = message.as<abi::Deliver>();
    const Aside request{
        message.req_id, deliver.activation(), name_of(deliver.event_id()), message.deadline_ns};
    UniqueFd body = context_->take_body();
    const std::uint64_t body_bytes = body.valid() ? deliver.body_bytes() : 0;
    // A fault inside the guest that is not one of ours to catch must be blamed on this event.
    context_->set_current(message.req_id);
    const Ran ran = residents_->run(request.activation,
                                    static_cast<std::uint32_t>(deliver.kind()),
                                    bytes_of(deliver.event()),
                                    deliver.now_ms(),
                                    request.deadline_ns,
                                    request.event,
                                    {std::move(body), body_bytes});
    context_->set_current(0);
    settle(request, ran);
}

void RuntimeWasm::resume(const sdk::Message& message) {
    const auto& resume = message.as<abi::Resume>();
    const Aside request{
        message.req_id, resume.activation(), name_of(resume.event_id()), message.deadline_ns};
    context_->set_current(message.req_id);
    const Ran ran = residents_->resume(request.activation,
                                       request.event,
                                       resume.n(),
                                       resume.code(),
                                       bytes_of(resume.payload()),
                                       request.deadline_ns);
    context_->set_current(0);
    settle(request, ran);
}

bool RuntimeWasm::work() {
    if (aside_.empty()) return false;
    const Aside oldest = aside_.front();
    context_->set_current(oldest.req_id);
    const Ran ran = residents_->go_on(oldest.activation, oldest.event, oldest.deadline_ns);
    context_->set_current(0);
    if (ran.ended == Ended::Preempted) {
        ++counts_.preemptions;
    } else {
        aside_.pop_front();
        answer(oldest.req_id, oldest.activation, ran);
    }
    return !aside_.empty();
}

void RuntimeWasm::settle(const Aside& request, const Ran& ran) {
    if (ran.ended != Ended::Preempted) return answer(request.req_id, request.activation, ran);
    ++counts_.preemptions;
    aside_.push_back(request);
}

void RuntimeWasm::answer(std::uint64_t req_id, std::uint64_t activation, const Ran& ran) {
    count(ran.ended);
    Event& event = *ran.output;
    const bool large = ran.ended == Ended::Ok && event.reply_large.valid();
    const std::uint64_t token =
        large ? context_->carry(event.reply_large.get(), event.reply_large_bytes) : 0;
    context_->reply(req_id, delivered(context_->builder(), activation, ran, token));
    // One that waits for a call keeps the reply it gave before.
    if (ran.ended != Ended::Calling) event.reply_large.reset();
    if (!ran.output->logs.empty() || ran.output->logs_dropped > 0) {
        tell_logs(*ran.output, residents_->unit(activation));
        ran.output->forget_logs();
    }
}

void RuntimeWasm::tell_logs(const Event& event, std::string_view unit) {
    const std::int64_t now = monotonic_ns();
    for (const LogLine& line : event.logs) {
        if (!gate_.pass(now)) continue;
        std::string text(unit);
        text += ": " + line.text;
        if (const std::uint64_t dropped = gate_.take_dropped(); dropped > 0)
            text += " (" + std::to_string(dropped) + " earlier lines of actors were dropped)";
        context_->log(static_cast<abi::LogLevel>(line.level), text);
    }
    gate_.add_dropped(event.logs_dropped);
}

void RuntimeWasm::checkpoint(const sdk::Message& message) {
    const std::uint64_t activation = message.as<abi::Checkpoint>().activation();
    const Result<Bytes> base = residents_->checkpoint(activation);
    Result<UniqueFd> file = base ? state_file(*base) : Result<UniqueFd>(base.error());
    const bool large = file && file->valid();
    auto& fbb = context_->builder();
    const auto bytes = file && !large ? fbb.CreateVector(base->data(), base->size())
                                      : flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>>();
    const auto error =
        file ? flatbuffers::Offset<flatbuffers::String>() : error_in(fbb, file.error().message);
    const std::uint64_t token = large ? context_->carry(file->get(), base->size()) : 0;
    context_->reply(message.req_id,
                    abi::CreateCheckpointed(
                        fbb, activation, file.ok(), bytes, error, token, large ? base->size() : 0));
}

void RuntimeWasm::count(Ended ended) {
    if (ended == Ended::Calling) {
        ++counts_.calls;
        return;
    }
    ++counts_.events;
    counts_.failed += ended == Ended::Failed ? 1 : 0;
    counts_.trapped += ended == Ended::Trapped ? 1 : 0;
    counts_.deadlines += ended == Ended::CpuDeadline || ended == Ended::WallDeadline ? 1 : 0;
    counts_.limits += ended == Ended::Limit ? 1 : 0;
}

void RuntimeWasm::batch_done() {
    if (residents_ == nullptr || counts_ == told_) return;
    const std::int64_t now = monotonic_ns();
    if (now - told_ns_ < kCountersEveryNs) return;
    auto& fbb = context_->builder();
    std::vector<flatbuffers::Offset<abi::Counter>> values;
    const auto add = [&](const char* name, std::uint64_t value) {
        values.push_back(abi::CreateCounter(fbb, fbb.CreateString(name), value));
    };
    add("wasm_events", counts_.events);
    add("wasm_events_failed", counts_.failed);
    add("wasm_events_trapped", counts_.trapped);
    add("wasm_events_over_deadline", counts_.deadlines);
    add("wasm_events_over_limit", counts_.limits);
    add("wasm_calls", counts_.calls);
    add("wasm_preemptions", counts_.preemptions);
    add("wasm_preempted_events", worker_->preempted());
    add("wasm_waiting_events", worker_->parked());
    add("wasm_resident_units", residents_->count());
    add("wasm_mapped_memories", residents_->mapped());
    if (context_->notify(abi::CreateCounters(fbb, fbb.CreateVector(values)))) told_ = counts_;
    told_ns_ = now;
}

}  // namespace hf::wasm
