// storage-s3: a bucket of an S3-compatible store. See storage_s3.hpp.
#include "plugins/storage-s3/storage_s3.hpp"

int main(int argc, char** argv) {
    return hf::sdk::run<hf::s3::StorageS3>(argc, argv);
}
