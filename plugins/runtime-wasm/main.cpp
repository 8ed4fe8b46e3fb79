// The executable of plugin runtime-wasm.
#include "plugins/runtime-wasm/plugin.hpp"

int main(int argc, char** argv) {
    return hf::sdk::run<hf::wasm::RuntimeWasm>(argc, argv);
}
