#include "tests/system/faults/fault_sheet.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "abi/base/unique_fd.hpp"

namespace hf::faults {

Result<FaultSheet*> map_fault_sheet(const std::string& store_directory) {
    constexpr std::size_t kPage = 4096;
    const std::string path = store_directory + "/faults";
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file.valid()) return fail_errno(errno, "opening " + path);
    void* place = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (place == MAP_FAILED) return fail_errno(errno, "mapping " + path);
    return static_cast<FaultSheet*>(place);
}

}  // namespace hf::faults
