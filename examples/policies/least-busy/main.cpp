#include "least_busy.hpp"

int main(int argc, char** argv) {
    return hf::sdk::run_placement<LeastBusy>("least-busy", argc, argv);
}
