// For tests only, never installed: a jail that also takes "unfiltered:<profile>", so that a test of a forbidden call
// can show that the call succeeds when the filter is away.
#include "jail/jail.hpp"

int main() {
    return hf::jail::run_jail(true);
}
