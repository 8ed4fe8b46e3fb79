// Which module each class runs when an operator has deployed one: kept in <data>/state/deployed.json, so that it survives
// a restart. Modules are named by their sha256; the bytes lie in the modules' cache.
//
// A deploy is newer than the file, so it wins over the module that agent.toml names, until the content of that module
// changes: then somebody has said something newer in the file. A damaged record is set aside and the file holds.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "abi/base/result.hpp"
#include "agent/control/state_file.hpp"
#include "agent/modules/cache.hpp"

namespace hf::daemon {

// What a runtime is configured with, by class.
using ModuleTable = std::map<std::string, modules::Entry>;
// Names a table by its content; `besides` is what else makes it another one.
[[nodiscard]] std::string table_id(const ModuleTable& table, const std::string& besides);

// A module as people see it: the head of its sha256, which tells the versions of one class apart; "none" for none.
[[nodiscard]] std::string shown(const std::string& wasm);

struct Deployment {
    std::string wasm;    // sha256 of what the class runs
    std::string before;  // and of what it ran before that; empty: there was no such class
    std::string file;    // what agent.toml named then; empty: it had no such class
    std::string source;  // the path the operator gave, for people
};

class Deployments {
public:
    explicit Deployments(std::filesystem::path path) : file_(std::move(path)) {}

    // What was kept. A damaged record is set aside: then `note` says so, and there is none. Io, Refused: it could not be read.
    Result<void> load(std::string& note);
    // Writes down what changed since it was last written down; what could not be is tried again by the next call.
    Result<void> save();

    // The module a class runs, given what agent.toml names now (empty: it has no such class); empty: none. A deployment that
    // agent.toml has overtaken is forgotten, and `overtaken` says so.
    [[nodiscard]] std::string choose(const std::string& class_name,
                                     const std::string& file_now,
                                     bool& overtaken);

    [[nodiscard]] const std::map<std::string, Deployment>& all() const { return by_class_; }
    [[nodiscard]] const Deployment* of(const std::string& class_name) const;
    void set(const std::string& class_name, Deployment deployment) {
        by_class_[class_name] = std::move(deployment);
        unsaved_ = true;
    }
    void forget(const std::string& class_name) {
        unsaved_ = by_class_.erase(class_name) != 0 || unsaved_;
    }

private:
    control::StateFile file_;
    std::map<std::string, Deployment> by_class_;
    bool unsaved_ = false;
};

}  // namespace hf::daemon
