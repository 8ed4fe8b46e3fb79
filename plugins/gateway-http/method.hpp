// The methods a request may have, as far as the gateway tells them apart.
#pragma once

#include <cstdint>

namespace hf::gateway {

enum class Method : std::uint8_t {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Patch,
    Options,
    NotAllowed,  // a method HTTP knows and no path here takes: 405
    Unknown,     // 501
};

}  // namespace hf::gateway
