#pragma once
#include <google/protobuf/message.h>

#include <span>
#include <string_view>

#include "tests/fuzz/input.h"

namespace gpumem::fuzz {

/// Gives every field of `message`, and of those in it, a value that `input` chooses: small numbers mostly,
/// any at times; texts of `texts` mostly, any bytes at times. Where the input has ended, fields keep their
/// defaults.
void fill(google::protobuf::Message& message, Input& input, std::span<const std::string_view> texts);

}  // namespace gpumem::fuzz
