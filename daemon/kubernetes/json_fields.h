#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gpumem::kubernetes {

using Json = nlohmann::json;

/// The field of `object` at the end of `path`; null if there is none. Does not throw, whatever `object` is.
const Json& field(const Json& object, std::initializer_list<std::string_view> path);

/// That field's text; empty if there is none, or no text.
std::string text_field(const Json& object, std::initializer_list<std::string_view> path);

/// The elements of that field; none if it is no array.
const Json::array_t& array_field(const Json& object, std::initializer_list<std::string_view> path);

/// Reads `text`. Discarded (is_discarded()): not JSON.
Json parse_json(std::string_view text);

/// `json` in one line; bytes that are not UTF-8 are replaced.
std::string json_text(const Json& json);

}  // namespace gpumem::kubernetes
