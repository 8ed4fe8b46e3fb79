// The engine's part of the host table: traps, memory, tables, function types.
#include <array>
#include <cstdlib>
#include <vector>

#include "abi/base/check.hpp"
#include "plugins/runtime-wasm/engine/instance.hpp"
#include "plugins/runtime-wasm/engine/program.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"

namespace hf::wasm {

namespace {

struct FuncType {
    std::uint32_t params;
    std::uint32_t results;
    std::vector<int> types;
    friend bool operator==(const FuncType&, const FuncType&) = default;
};

// Process-wide and only ever grown while modules are loaded, on the one loading thread: call_indirect compares numbers.
std::vector<FuncType>& func_types() {
    static std::vector<FuncType> types;
    return types;
}

std::uint32_t register_func_type(std::uint32_t params, std::uint32_t results, const int* types) {
    FuncType wanted{params, results, {types, types + params + results}};
    auto& known = func_types();
    for (std::size_t i = 0; i < known.size(); ++i)
        if (known[i] == wanted) return static_cast<std::uint32_t>(i + 1);
    known.push_back(std::move(wanted));
    return static_cast<std::uint32_t>(known.size());
}

void trap(int code) {
    Worker::enter_host().stop_guest(Stop::Trap, code);
}

void allocate_memory(wasm_rt_memory_t* memory, std::uint32_t pages, std::uint32_t max_pages) {
    Worker& worker = Worker::enter_host();
    worker.instance().allocate(memory, pages, max_pages);
    worker.leave_host();
}

std::uint32_t grow_memory(wasm_rt_memory_t* memory, std::uint32_t pages) {
    Worker& worker = Worker::enter_host();
    HF_CHECK(memory == &worker.instance().memory(), "only the running instance grows");
    const std::uint32_t before = worker.instance().grow(memory, pages);
    worker.leave_host();
    return before;
}

// Called while the template or the image is made; ownership passes to whoever instantiates (std::free).
void allocate_table(wasm_rt_funcref_table_t* table, std::uint32_t size, std::uint32_t max_size) {
    Worker& worker = Worker::enter_host();
    table->size = size;
    table->max_size = max_size;
    table->data = static_cast<wasm_rt_funcref_t*>(
        std::calloc(size > 0 ? size : 1, sizeof(wasm_rt_funcref_t)));
    HF_CHECK(table->data != nullptr, "out of memory");
    worker.leave_host();
}

}  // namespace

void fill_engine_calls(hf_host_v1& host) {
    host.trap = trap;
    host.register_func_type = register_func_type;
    host.allocate_memory = allocate_memory;
    host.grow_memory = grow_memory;
    host.allocate_table = allocate_table;
}

}  // namespace hf::wasm
