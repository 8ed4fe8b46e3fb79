#include "plugins/http-client/name_service.hpp"

#include <dlfcn.h>

#include <fstream>
#include <sstream>
#include <string>

namespace hf::web {

void load_name_service() {
    std::ifstream file("/etc/nsswitch.conf");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string word;
        if (!(words >> word) || word != "hosts:") continue;
        while (words >> word) {
            // "[NOTFOUND=return]" is no service; these two are part of the C library.
            if (word.front() == '[' || word.back() == ']' || word == "files" || word == "dns")
                continue;
            // Stays loaded until the process ends.
            (void)::dlopen(("libnss_" + word + ".so.2").c_str(), RTLD_LAZY);
        }
    }
}

}  // namespace hf::web
