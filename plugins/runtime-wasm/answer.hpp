// What an event did, as the message that says so.
#pragma once

#include <string_view>

#include "envelope_generated.h"
#include "plugins/runtime-wasm/serve/residents.hpp"

namespace hf::wasm {

// A sentence of ours, cut to what an answer has room for; absent when empty.
flatbuffers::Offset<flatbuffers::String> error_in(flatbuffers::FlatBufferBuilder& fbb,
                                                  std::string_view why);

// Fits one record: the host functions of the event kept to kEventOutputBytesMax. `body_token`: of the reply's large body,
// 0 when it has none.
flatbuffers::Offset<abi::Delivered> delivered(flatbuffers::FlatBufferBuilder& fbb,
                                              std::uint64_t activation,
                                              const Ran& ran,
                                              std::uint64_t body_token = 0);

}  // namespace hf::wasm
