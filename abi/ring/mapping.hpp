// A shared mapping of a whole memfd, unmapped with its owner. The one place that names Boost.Interprocess.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "abi/base/result.hpp"

namespace hf::ring {

enum class Access { ReadOnly, ReadWrite };

class Mapping {
public:
    // Maps `bytes` of the memfd and populates the page table, so that the hot path takes no faults. Fails when the file
    // is smaller: touching beyond its end would be a bus error later. The descriptor stays the caller's.
    static Result<Mapping> map(int fd, std::size_t bytes, Access access);

    Mapping();
    ~Mapping();
    Mapping(Mapping&&) noexcept;
    Mapping& operator=(Mapping&&) noexcept;

    [[nodiscard]] std::size_t size() const;
    [[nodiscard]] std::uint8_t* data() const;  // writing through it is allowed for ReadWrite only
    [[nodiscard]] bool valid() const { return region_ != nullptr; }

private:
    struct Region;
    std::unique_ptr<Region> region_;
};

}  // namespace hf::ring
