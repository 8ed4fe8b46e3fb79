// holdfast: the operator's command line.
#include <iostream>
#include <string>
#include <vector>

#include "cli/app.hpp"

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    return hf::cli::run(words, hf::cli::Surroundings::of_process(), std::cout, std::cerr);
}
