// The plugin as a plain child: no jail, the second filter is on. HF_RUNTIME_WASM names its binary.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/runtime-wasm/testing/runtime_process.hpp"

namespace hf::wasm::testing {

class Plain : public Runtime {
public:
    explicit Plain(const std::vector<ModuleFile>& modules,
                   const std::vector<std::pair<std::string, std::string>>& settings = {})
        : Plain(std::make_shared<rig::Child>(), modules, settings) {}

private:
    Plain(const std::shared_ptr<rig::Child>& child,
          const std::vector<ModuleFile>& modules,
          const std::vector<std::pair<std::string, std::string>>& settings)
        : Runtime(
              [child](UniqueFd control) {
                  *child = rig::Child(HF_RUNTIME_WASM, {"--kind", "runtime"}, std::move(control));
                  return child->pid();
              },
              modules,
              settings),
          child_(child) {}
    std::shared_ptr<rig::Child> child_;
};

}  // namespace hf::wasm::testing
