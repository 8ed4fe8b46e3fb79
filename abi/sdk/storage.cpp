#include "abi/sdk/storage.hpp"

#include "abi/base/limits.hpp"
#include "abi/ring/bodies.hpp"

namespace hf::sdk {

Result<void> reply_object(Context& context,
                          std::uint64_t req_id,
                          BytesView body,
                          std::string_view etag,
                          const abi::WriteId& write_id) {
    UniqueFd file;
    if (body.size() > kInlineObjectBytesMax) {
        HF_ASSIGN(file, ring::sealed_body("holdfast-object", body));
    }
    flatbuffers::FlatBufferBuilder& builder = context.builder();
    const flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> inside =
        file.valid() ? 0 : builder.CreateVector(body.data(), body.size());
    const flatbuffers::Offset<flatbuffers::String> tag =
        etag.empty() ? 0 : builder.CreateString(etag.data(), etag.size());
    const std::uint64_t bytes = file.valid() ? body.size() : 0;
    const std::uint64_t token = file.valid() ? context.carry(file.get(), bytes) : 0;
    context.reply(
        req_id,
        abi::CreateGot(builder, abi::Outcome::Applied, inside, tag, &write_id, 0, token, bytes));
    return {};
}

}  // namespace hf::sdk
