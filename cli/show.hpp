// The node's answers for people. Fields that are not known are left out, fields that are missing come out as "-": a CLI and
// a node of different versions still understand each other.
#pragma once

#include <iosfwd>

#include "cli/wire.hpp"

namespace hf::cli {

void show_status(std::ostream& out, const Json& result);
void show_cluster(std::ostream& out, const Json& result);
void show_plugins(std::ostream& out, const Json& result);
void show_letters(std::ostream& out, const Json& result);
void show_actors(std::ostream& out, const Json& result);
void show_config(std::ostream& out, const Json& result);
// Of a swap, roll-back or reset: its sentence.
void show_outcome(std::ostream& out, const Json& result);
// Of a reload: what changed, from what to what.
void show_reload(std::ostream& out, const Json& result);
// Anything else: one "key  value" line each.
void show_fields(std::ostream& out, const Json& result);

}  // namespace hf::cli
