#include "client/cli/regions/array_layout.h"

#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "client/cli/regions/array_name.h"

namespace gpumem::cli {
namespace {

using LayoutJson = nlohmann::json;  // whose keys are in their order

constexpr std::string_view kLayoutMagic = "gpumemLA";
constexpr std::size_t kLayoutHeadBytes = 16;
constexpr std::uint32_t kVersion = 1, kVersionOfTexts = 2;  // as of an array with metadata

constexpr std::array<Dtype, 18> kDtypes{{
    {"bool", 1, "BOOL"},
    {"int8", 1, "I8"},
    {"int16", 2, "I16"},
    {"int32", 4, "I32"},
    {"int64", 8, "I64"},
    {"uint8", 1, "U8"},
    {"uint16", 2, "U16"},
    {"uint32", 4, "U32"},
    {"uint64", 8, "U64"},
    {"float16", 2, "F16"},
    {"float32", 4, "F32"},
    {"float64", 8, "F64"},
    {"bfloat16", 2, "BF16"},
    {"float8_e4m3fn", 1, "F8_E4M3"},
    {"float8_e5m2", 1, "F8_E5M2"},
    {"float8_e8m0fnu", 1, "F8_E8M0"},
    {"complex64", 8, "C64"},
    {"complex128", 16, ""},
}};

Error bad_layout(const std::string& why) { return {Code::kInvalidArgument, "its layout " + why}; }

void put_little(std::string& text, std::uint32_t number) {
  for (unsigned shift = 0; shift < 32; shift += 8) text += static_cast<char>(number >> shift);
}

LayoutJson json_of(const ArrayPlace& array) {
  LayoutJson json{{"dtype", array.dtype->name},  {"name", array.name},   {"offset", array.offset},
                  {"private", array.is_private}, {"shape", array.shape}, {"strides", array.strides}};
  if (!array.metadata.empty()) json["metadata"] = array.metadata;
  return json;
}

/// Whether the text has no more, nor deeper, objects and lists than a layout: what is made of it is bounded,
/// whoever wrote it.
bool has_form_of_layout(std::string_view text) {
  constexpr std::size_t kMostDepth = 4;
  constexpr std::size_t kMostOfArray = 4;  // itself, its shape, its strides, its metadata
  std::size_t depth = 0, count = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_text && letter == '\\') {
      ++i;
    } else if (letter == '"') {
      in_text = !in_text;
    } else if (!in_text && (letter == '{' || letter == '[')) {
      if (++depth > kMostDepth || ++count > kMostOfArray * (kMostArrays + 1)) return false;
    } else if (!in_text && (letter == '}' || letter == ']')) {
      if (depth-- == 0) return false;
    }
  }
  return true;
}

LayoutJson parsed(std::string_view text) {
  constexpr auto kNoCallback = nullptr;  // it looks through an object's siblings at its end
  if (!has_form_of_layout(text)) return LayoutJson(LayoutJson::value_t::discarded);
  return LayoutJson::parse(text, kNoCallback, /*allow_exceptions=*/false);
}

/// Takes the members of an array's object; what is missing or of another type makes it no array.
class PlaceReader {
 public:
  explicit PlaceReader(const LayoutJson& json) : json_(json) {}

  Result<ArrayPlace> read() {
    ArrayPlace place;
    const LayoutJson* name = member("name");
    const LayoutJson* dtype = member("dtype");
    const LayoutJson* is_private = member("private");
    const LayoutJson* offset = member("offset");
    if (!name || !name->is_string() || !dtype || !dtype->is_string() || !is_private ||
        !is_private->is_boolean() || !offset || !is_size(*offset) || !take("shape", place.shape) ||
        !take("strides", place.strides) || !take_metadata(place.metadata))
      return bad_layout("has an array that is none");
    place.name = name->get<std::string>();
    place.dtype = dtype_of(dtype->get_ref<const std::string&>());
    place.is_private = is_private->get<bool>();
    place.offset = offset->get<std::uint64_t>();
    return place;
  }

  static bool take_texts(const LayoutJson& json, Texts& texts) {
    if (!json.is_object()) return false;
    for (const auto& [key, text] : json.items()) {
      if (!text.is_string()) return false;
      texts.emplace(key, text.get<std::string>());
    }
    return true;
  }

 private:
  static bool is_size(const LayoutJson& json) {
    return json.is_number_unsigned() && json.get<std::uint64_t>() <= kMostArrayBytes;
  }
  const LayoutJson* member(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  bool take(const char* key, Shape& numbers) const {
    const LayoutJson* list = member(key);
    if (!list || !list->is_array() || list->size() > kMostDimensions) return false;
    if (!std::ranges::all_of(*list, is_size)) return false;
    numbers = list->get<Shape>();
    return true;
  }
  bool take_metadata(Texts& texts) const {
    const LayoutJson* json = member("metadata");
    return !json || take_texts(*json, texts);
  }

  const LayoutJson& json_;
};

bool is_contiguous(const ArrayPlace& place) {
  const Shape usual = contiguous_strides(place.shape, place.dtype->size);
  if (place.strides.size() != usual.size()) return false;
  if (std::ranges::find(place.shape, 0U) != place.shape.end()) return true;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    if (place.shape[i] != 1 && place.strides[i] != usual[i]) return false;
  }
  return true;
}

Result<void> check_place(const ArrayPlace& place, std::uint64_t room) {
  if (auto named = check_array_name(place.name, "an array"); !named) return named.error().in("its layout");
  const auto refuse = [&](const std::string& why) {
    return bad_layout("has the array " + shown_name(place.name) + ", " + why);
  };
  if (!place.dtype) return refuse("whose elements are of no type that is known");
  const auto bytes = bytes_of_shape(place.shape, place.dtype->size);
  if (!bytes) return refuse("which has " + bytes.error().message);
  if (!is_contiguous(place)) return refuse("which is not in C's order without gaps");
  if (*bytes > room || place.offset > room - *bytes) return refuse("which ends beyond the arrays' bytes");
  return {};
}

Result<void> check_overlap(const std::vector<ArrayPlace>& arrays) {
  std::vector<const ArrayPlace*> in_order;
  std::set<std::string_view> names;
  for (const ArrayPlace& array : arrays) {
    if (!names.insert(array.name).second)
      return bad_layout("has two arrays of the name " + shown_name(array.name));
    if (array.bytes() > 0) in_order.push_back(&array);
  }
  std::ranges::sort(in_order, {}, &ArrayPlace::offset);
  for (std::size_t i = 1; i < in_order.size(); ++i) {
    const ArrayPlace &before = *in_order[i - 1], &after = *in_order[i];
    if (after.offset < before.offset + before.bytes())
      return bad_layout("has arrays that overlap: " + shown_name(before.name) + " and " +
                        shown_name(after.name));
  }
  return {};
}

}  // namespace

const Dtype* dtype_of(std::string_view name) {
  const auto* found = std::ranges::find(kDtypes, name, &Dtype::name);
  return found == kDtypes.end() ? nullptr : found;
}

const Dtype* dtype_of_safetensors(std::string_view name) {
  const auto* found = std::ranges::find(kDtypes, name, &Dtype::safetensors);
  return found == kDtypes.end() || name.empty() ? nullptr : found;
}

std::uint64_t ArrayPlace::bytes() const {
  std::uint64_t bytes = dtype->size;
  for (const std::uint64_t count : shape) bytes *= count;
  return bytes;
}

Result<std::uint64_t> bytes_of_shape(const Shape& shape, std::uint64_t element) {
  std::uint64_t bytes = element;
  bool is_empty = false;
  for (const std::uint64_t count : shape) {
    is_empty = is_empty || count == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::uint64_t>(count, 1), &bytes) || bytes > kMostArrayBytes)
      return Error{Code::kInvalidArgument, "more than 2^63 - 1 bytes"};
  }
  return is_empty ? 0 : bytes;
}

Shape contiguous_strides(const Shape& shape, std::uint64_t element) {
  Shape strides(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = element;
    element *= std::max<std::uint64_t>(shape[i], 1);
  }
  return strides;
}

std::uint64_t array_aligned(std::uint64_t bytes) {
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

Result<std::string> ArrayLayout::encode() const {
  std::string text = R"({"arrays":[)";
  bool has_texts = false;
  for (const ArrayPlace& array : arrays) {
    if (&array != &arrays.front()) text += ',';
    text += json_of(array).dump();
    has_texts = has_texts || !array.metadata.empty();
  }
  text += R"(],"metadata":)" + LayoutJson(metadata).dump() + "}";
  if (const std::size_t bytes = kLayoutHeadBytes + text.size(); bytes > kMostBytes) {
    return Error{Code::kInvalidArgument, "the layout of its arrays has " + std::to_string(bytes) +
                                             " bytes; it has " + std::to_string(kMostBytes) + " at most"};
  }
  std::string encoded(kLayoutMagic);
  put_little(encoded, has_texts ? kVersionOfTexts : kVersion);
  put_little(encoded, static_cast<std::uint32_t>(text.size()));
  return encoded + text;
}

bool ArrayLayout::is_encoded(std::string_view bytes) { return bytes.starts_with(kLayoutMagic); }

// The one encoding is compared in the end: of that, keys that are none, or come twice, are not part.
Result<ArrayLayout> ArrayLayout::decode(std::string_view bytes, std::uint64_t room) {
  if (!is_encoded(bytes) || bytes.size() < kLayoutHeadBytes || bytes.size() > kMostBytes)
    return bad_layout("is none of arrays");
  const LayoutJson json = parsed(bytes.substr(kLayoutHeadBytes));
  ArrayLayout layout;
  if (!json.is_object() || !json.contains("arrays") || !json["arrays"].is_array() ||
      !json.contains("metadata") || !PlaceReader::take_texts(json["metadata"], layout.metadata))
    return bad_layout("has no arrays, or no metadata");
  if (json["arrays"].size() > kMostArrays)
    return bad_layout("has more than " + std::to_string(kMostArrays) + " arrays");
  for (const LayoutJson& array : json["arrays"]) {
    auto place = PlaceReader(array).read();
    if (!place) return place.error();
    if (auto right = check_place(*place, room); !right) return right.error();
    layout.arrays.push_back(std::move(*place));
  }
  if (auto apart = check_overlap(layout.arrays); !apart) return apart.error();
  const auto again = layout.encode();
  if (!again || *again != bytes) return bad_layout("is not written in the one way that it can be");
  return layout;
}

std::array<unsigned char, 32> digest_of(std::string_view encoded) {
  std::array<unsigned char, 32> digest{};
  ::EVP_Digest(encoded.data(), encoded.size(), digest.data(), nullptr, ::EVP_sha256(), nullptr);
  return digest;
}

}  // namespace gpumem::cli
