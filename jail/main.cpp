// holdfast-jail: builds the walls around one plugin and stays as its parent. See jail.hpp.
#include "jail/jail.hpp"

int main() {
    return hf::jail::run_jail(false);
}
