#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

using Json = nlohmann::json;

/// The field of `object` at the end of `path`; null if there is none. Does not throw, whatever `object` is.
const Json& field(const Json& object, std::initializer_list<std::string_view> path);

/// That field's text; empty if there is none, or no text.
std::string text_field(const Json& object, std::initializer_list<std::string_view> path);

/// That field's number; zero if there is none, or no number that is not negative.
std::uint64_t count_field(const Json& object, std::initializer_list<std::string_view> path);

/// The elements of that field; none if it is no array.
const Json::array_t& array_field(const Json& object, std::initializer_list<std::string_view> path);

/// Reads `text`. Discarded (is_discarded()): not JSON.
Json parse_json(std::string_view text);

/// `json` in one line; bytes that are not UTF-8 are replaced.
std::string json_text(const Json& json);

/// Reads an amount of bytes as Kubernetes writes it: `8Gi`, `1500M`, `1e9`, `100m`. A fraction of a byte
/// counts as a whole one. Errors  kInvalidArgument: not a quantity, negative, over 2^64-1.
Result<Bytes> parse_quantity(std::string_view text);

/// The form that the API server stores: the largest binary unit that leaves a whole number, `80Gi`.
std::string quantity_text(Bytes bytes);

}  // namespace gpumem::kubernetes
