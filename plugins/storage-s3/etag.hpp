// Entity tags. The supervisor gets one form, with quotes, from wherever a tag was read; what is in them is the store's own
// affair. The store gets the form it wants.
#pragma once

#include <string>
#include <string_view>

namespace hf::s3 {

// Of a header or a listing: listings of some stores leave the quotes away.
[[nodiscard]] inline std::string etag_from_wire(std::string_view wire) {
    if (wire.empty()) return {};
    if (wire.front() == '"' || wire.starts_with("W/")) return std::string(wire);
    return '"' + std::string(wire) + '"';
}

// For If-Match. Ceph compares the bare text with what it keeps and so refuses the quoted form, which is HTTP's.
[[nodiscard]] inline std::string etag_to_wire(std::string_view etag, bool bare) {
    if (bare && etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
        return std::string(etag.substr(1, etag.size() - 2));
    return std::string(etag);
}

}  // namespace hf::s3
