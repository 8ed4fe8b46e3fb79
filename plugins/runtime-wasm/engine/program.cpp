#include "plugins/runtime-wasm/engine/program.hpp"

#include <cstdlib>
#include <cstring>

#include "plugins/runtime-wasm/engine/instance.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"

namespace hf::wasm {

namespace {

// Instantiating copies data segments of at most a few MiB.
constexpr Deadlines kTemplateDeadlines{2'000'000'000, 10'000'000'000};
// A compiled struct holds globals, one memory and one table object; more is not what our builder wrote.
constexpr std::uint32_t kInstanceBytesMax = 1u << 20;
constexpr std::uint32_t kGlobalsMax = 4096;

std::uint32_t instantiate(Instance& instance, void* arg) {
    static_cast<const hf_module_v1*>(arg)->instantiate(instance.guest());
    return 0;
}

std::size_t offset_in(const void* whole, const void* part) {
    return static_cast<std::size_t>(static_cast<const std::uint8_t*>(part) -
                                    static_cast<const std::uint8_t*>(whole));
}

}  // namespace

Result<void> Program::check(const hf_module_v1* module) {
    if (module == nullptr) return fail(Code::Corrupt, "the compiled module has no descriptor");
    if (module->abi != HF_MODULE_ABI || module->module_bytes != sizeof(hf_module_v1) ||
        module->host_bytes != sizeof(hf_host_v1))
        return fail(Code::Corrupt,
                    "the compiled module was built for another host (ABI " +
                        std::to_string(module->abi) + ", ours is " + std::to_string(HF_MODULE_ABI) +
                        "): build it again");
    if (module->instance_bytes > kInstanceBytesMax || module->global_count > kGlobalsMax ||
        module->set_host == nullptr || module->init == nullptr || module->instantiate == nullptr ||
        module->memory == nullptr || module->actor_alloc == nullptr ||
        module->actor_event == nullptr)
        return fail(Code::Corrupt, "the compiled module's descriptor is incomplete");
    return {};
}

Result<std::unique_ptr<Program>> Program::create(const hf_module_v1* module,
                                                 const hf_host_v1& host,
                                                 Image image,
                                                 Worker& worker,
                                                 SlotPool& pool) {
    HF_TRY(check(module));
    module->set_host(&host);
    module->init();

    Instance first(pool, 65535);
    HF_TRY(first.adopt_block(module->instance_bytes));
    const Outcome outcome = worker.run(
        first,
        instantiate,
        const_cast<hf_module_v1*>(module),
        kTemplateDeadlines);  // NOLINT(cppcoreguidelines-pro-type-const-cast): a void* argument, read only
    wasm_rt_funcref_table_t* table =
        module->table != nullptr ? module->table(first.guest()) : nullptr;
    struct FreeTable {
        wasm_rt_funcref_table_t* table;
        ~FreeTable() {
            if (table != nullptr) std::free(table->data);  // NOLINT: from the engine's calloc
        }
    } free_table{table};
    if (outcome.stop != Stop::Done)
        return fail(Code::Invalid,
                    std::string("instantiating the module stopped: ") + trap_text(outcome.trap));
    if (module->memory(first.guest())->pages > image.pages)
        return fail(Code::Corrupt, "the image is smaller than the module's memory");
    if (image.globals.size() != module->global_count)
        return fail(Code::Corrupt,
                    "the image has " + std::to_string(image.globals.size()) +
                        " globals, the module " + std::to_string(module->global_count));

    auto program = std::make_unique<Program>();
    program->module_ = module;
    const auto* block = static_cast<const std::uint8_t*>(first.guest());
    program->struct_.assign(block, block + module->instance_bytes);
    program->memory_at_ = offset_in(block, module->memory(first.guest()));
    if (table != nullptr) {
        program->table_at_ = offset_in(block, table);
        program->table_.assign(table->data, table->data + table->size);
    }
    for (std::uint32_t i = 0; i < module->global_count; ++i)
        program->global_at_.push_back(
            static_cast<std::uint32_t>(offset_in(block, module->globals[i].at(first.guest()))));
    program->table_offset_ = (program->struct_.size() + alignof(wasm_rt_funcref_t) - 1) /
                             alignof(wasm_rt_funcref_t) * alignof(wasm_rt_funcref_t);

    // The template carries the image's globals and memory size; only pointers are left to stamp().
    for (std::uint32_t i = 0; i < module->global_count; ++i)
        std::memcpy(program->struct_.data() + program->global_at_[i],
                    &image.globals[i],
                    module->globals[i].bytes);
    wasm_rt_memory_t memory{};
    std::memcpy(&memory, program->struct_.data() + program->memory_at_, sizeof memory);
    memory.data = nullptr;
    memory.pages = image.pages;
    memory.size = static_cast<std::uint32_t>(image.pages * kWasmPageBytes);
    std::memcpy(program->struct_.data() + program->memory_at_, &memory, sizeof memory);
    program->image_ = std::move(image);
    return program;
}

void Program::stamp(std::uint8_t* block, std::uint8_t* memory) const {
    std::memcpy(block, struct_.data(), struct_.size());
    std::memcpy(block + memory_at_ + offsetof(wasm_rt_memory_t, data), &memory, sizeof memory);
    if (!table_.empty()) {
        // SAFETY: the block is at least pointer-aligned (operator new) and table_offset_ is a multiple of that.
        auto* entries = reinterpret_cast<wasm_rt_funcref_t*>(block + table_offset_);
        for (std::size_t i = 0; i < table_.size(); ++i) {
            entries[i] = table_[i];
            // A template entry points into the template's instance; ours must point into ours.
            if (entries[i].func != nullptr) entries[i].module_instance = block;
        }
        // The table holds the pointer itself.
        std::memcpy(
            block + table_at_ + offsetof(wasm_rt_funcref_table_t, data), &entries, sizeof(void*));
    }
}

}  // namespace hf::wasm
