#include "agent/port/large.hpp"

#include <utility>

#include "abi/ring/bodies.hpp"

namespace hf::port {

std::shared_ptr<const SealedBody> state_file(BytesView bytes) {
    auto file = ring::sealed_body("holdfast-state", bytes);
    if (!file) return nullptr;
    return std::make_shared<const SealedBody>(std::move(file).value(), bytes.size());
}

bool read_state(const SealedBody& file, Bytes& out) {
    out.resize(file.bytes());
    return ring::read_body(file.fd(), out.data(), out.size(), 0);
}

}  // namespace hf::port
