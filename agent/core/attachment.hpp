// A body too large for a record, as the core sees it: a handle with a size. What is behind it is the business of whoever
// moves it (agent/port: a sealed memory file); the core counts its bytes, passes it on and lets it go.
#pragma once

#include <cstdint>
#include <memory>

namespace hf::core {

class Attachment {
public:
    explicit Attachment(std::uint64_t bytes) : bytes_(bytes) {}
    virtual ~Attachment() = default;
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

private:
    std::uint64_t bytes_;
};
// Null: no attachment.
using AttachmentRef = std::shared_ptr<const Attachment>;

}  // namespace hf::core
