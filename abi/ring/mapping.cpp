#include "abi/ring/mapping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include <boost/interprocess/mapped_region.hpp>

namespace hf::ring {

namespace {

namespace bip = boost::interprocess;

// What mapped_region wants to know of a thing it maps.
class Memfd {
public:
    explicit Memfd(int fd) : fd_(fd) {}
    [[nodiscard]] bip::mapping_handle_t get_mapping_handle() const {
        bip::mapping_handle_t handle{};
        handle.handle = fd_;
        handle.is_xsi = false;
        return handle;
    }

private:
    int fd_;
};

}  // namespace

struct Mapping::Region {
    bip::mapped_region inner;
};

Mapping::Mapping() = default;
Mapping::~Mapping() = default;
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;

Result<Mapping> Mapping::map(int fd, std::size_t bytes, Access access) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return fail_errno(errno, "cannot examine a shared memory file");
    if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) < bytes)
        return fail(Code::Corrupt,
                    "a shared memory file has " + std::to_string(info.st_size) + " bytes where " +
                        std::to_string(bytes) + " are expected");
    try {
        Mapping out;
        out.region_ = std::make_unique<Region>();
        out.region_->inner =
            bip::mapped_region(Memfd(fd),
                               access == Access::ReadWrite ? bip::read_write : bip::read_only,
                               0,
                               bytes,
                               nullptr,
                               MAP_POPULATE);
        return out;
    } catch (const bip::interprocess_exception& error) {
        return fail_errno(error.get_native_error(),
                          "cannot map " + std::to_string(bytes) + " bytes of a shared memory file");
    }
}

std::size_t Mapping::size() const {
    return region_ ? region_->inner.get_size() : 0;
}

std::uint8_t* Mapping::data() const {
    return region_ ? static_cast<std::uint8_t*>(region_->inner.get_address()) : nullptr;
}

}  // namespace hf::ring
