#include "plugins/runtime-wasm/build/image_child.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

#include "plugins/runtime-wasm/engine/worker.hpp"
#include "plugins/runtime-wasm/host/event.hpp"
#include "plugins/runtime-wasm/module/image.hpp"
#include "plugins/runtime-wasm/module/loader.hpp"

namespace hf::wasm {

namespace {

// Precision of the image deadline; the worker is gone a moment later.
constexpr std::int64_t kTickNs = 10'000'000;

using GuestVoid = void (*)(void*);

std::uint32_t call_void(Instance& instance, void* arg) {
    (*static_cast<GuestVoid*>(arg))(instance.guest());
    return 0;
}

std::string why_stopped(const Outcome& outcome, const Event& event) {
    switch (outcome.stop) {
        case Stop::Done:
            break;
        case Stop::Trap:
            return std::string("trap: ") + trap_text(outcome.trap);
        case Stop::CpuDeadline:
            return "it used more than 2 s of CPU time";
        case Stop::WallDeadline:
            return "it took more than 10 s";
        case Stop::Abort:
            return event.abort;
        case Stop::Parked:
        case Stop::Preempted:
            break;
    }
    return "";
}

Result<Bytes> prepare(const std::string& so) {
    SlotPool pool(1);
    HF_ASSIGN(const auto worker, Worker::create(kTickNs));
    HF_ASSIGN(const hf_module_v1* module, open_descriptor(so));
    HF_TRY(Program::check(module));
    hf_host_v1 host{};
    fill_engine_calls(host);
    fill_guest_calls(host);
    module->set_host(&host);
    module->init();

    Event event;
    event.reset(nullptr, Kind::None, 0, 0);
    Instance instance(pool, kImagePagesMax);
    instance.event = &event;
    HF_TRY(instance.adopt_block(module->instance_bytes));
    struct Step {
        const char* name;
        GuestVoid call;
    };
    for (Step step : {Step{"instantiating the module", module->instantiate},
                      Step{"the start function", module->start},
                      Step{"_initialize", module->initialize},
                      Step{"actor_prepare", module->actor_prepare}}) {
        if (step.call == nullptr) continue;
        const Outcome outcome =
            worker->run(instance, call_void, &step.call, {kImageCpuNs, kImageWallNs});
        if (outcome.stop != Stop::Done)
            return fail(Code::Refused,
                        std::string("while the image was made, ") + step.name +
                            " stopped: " + why_stopped(outcome, event));
    }
    std::vector<std::uint64_t> globals(module->global_count);
    for (std::uint32_t i = 0; i < module->global_count; ++i)
        std::memcpy(&globals[i], module->globals[i].at(instance.guest()), module->globals[i].bytes);
    const wasm_rt_memory_t& memory = instance.memory();
    return encode_image({memory.data, memory.size}, globals);
}

bool write_file(const std::string& path, BytesView bytes) {
    std::FILE* file = std::fopen(path.c_str(), "we");
    if (file == nullptr) return false;
    const bool whole = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    return std::fclose(file) == 0 && whole;
}

}  // namespace

Result<Bytes> make_image(const std::string& so, const std::string& scratch) {
    const std::string image = scratch + "/image";
    const std::string failure = scratch + "/image-failure";
    const pid_t child = ::fork();
    if (child < 0) return fail_errno(errno, "starting the image phase");
    if (child == 0) {
        const Result<Bytes> made = prepare(so);
        const bool told =
            made ? write_file(image, *made) : write_file(failure, as_bytes(made.error().message));
        ::_exit(!told ? 4 : made ? 0 : made.error().code == Code::Refused ? 3 : 4);
    }
    // The child bounds itself: each call has a deadline and nothing else in it waits.
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status))
        return fail(Code::Refused,
                    "while the image was made, the module ended its process by signal " +
                        std::to_string(WTERMSIG(status)));
    if (WEXITSTATUS(status) == 0) return read_file(image, kImageBytesMax);
    HF_ASSIGN(const Bytes why, read_file(failure, 4096));
    return fail(WEXITSTATUS(status) == 3 ? Code::Refused : Code::Unavailable,
                std::string(as_text(why)));
}

}  // namespace hf::wasm
