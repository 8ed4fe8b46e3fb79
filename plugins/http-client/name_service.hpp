// The libraries by which names become addresses, loaded before a process gives up loading code. Responsible for nothing else:
// names are resolved by libcurl, on threads of its own.
#pragma once

namespace hf::web {

// Loads what the machine's /etc/nsswitch.conf names for hosts beyond what the C library has built in. Asks no server. What
// cannot be loaded is passed over: the C library would pass over it too.
void load_name_service();

}  // namespace hf::web
