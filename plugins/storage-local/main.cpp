// storage-local: the embedded store. See storage_local.hpp.
#include "plugins/storage-local/storage_local.hpp"

int main(int argc, char** argv) {
    return hf::sdk::run<hf::bucket::StorageLocal>(argc, argv);
}
