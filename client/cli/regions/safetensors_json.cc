#include "client/cli/regions/safetensors_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "client/cli/regions/array_name.h"

namespace gpumem::cli {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

/// Where in the text: nothing that is read lies deeper.
enum class Within { kNothing, kHeader, kMetadata, kTensor, kShape, kOffsets };

/// Takes the text's parts one after the other. The first one that does not belong there ends the reading.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Result<SafetensorsHeader> finish(bool is_read) {
    if (is_read) return std::move(header_);
    return error_.message.empty() ? Error{Code::kInvalidArgument, "the header is no JSON in UTF-8"} : error_;
  }

  bool null() override { return refuse_value(); }
  bool boolean(bool /*value*/) override { return refuse_value(); }
  bool number_integer(number_integer_t number) override {
    return take(std::to_string(number), number < 0 ? std::nullopt : std::optional<std::uint64_t>(number));
  }
  bool number_unsigned(number_unsigned_t number) override {
    return take(std::to_string(number),
                number <= kMostArrayBytes ? std::optional<std::uint64_t>(number) : std::nullopt);
  }
  bool number_float(number_float_t /*number*/, const string_t& digits) override;
  bool string(string_t& text) override;
  bool binary(binary_t& /*bytes*/) override { return refuse_value(); }
  bool start_object(std::size_t /*size*/) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t /*size*/) override;
  bool end_array() override;
  bool parse_error(std::size_t at, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return refuse("the header is no JSON in UTF-8, at its byte " + std::to_string(at));
  }

 private:
  /// A number; none that a shape or an offset can be, if `number` is empty.
  bool take(const std::string& digits, std::optional<std::uint64_t> number);
  bool begin_member(const std::string& name);
  bool finish_tensor();
  /// What stands here is of another type than what belongs here.
  bool refuse_value();
  bool refuse(std::string why) {
    error_ = {Code::kInvalidArgument, std::move(why)};
    return false;
  }
  bool refuse_tensor(const std::string& why) { return refuse("tensor " + shown_name(name_) + ": " + why); }

  SafetensorsHeader header_;
  Error error_;
  Within within_ = Within::kNothing;
  std::set<std::string, std::less<>> names_;  ///< of the header's members
  std::string name_;                          ///< of the header's member
  std::string key_;                           ///< in that
  std::set<std::string, std::less<>> keys_;   ///< that it has had
  Tensor tensor_;
  std::vector<std::uint64_t> offsets_;
};

bool HeaderReader::refuse_value() {
  const bool is_texts = within_ == Within::kMetadata || name_ == kMetadataKey;
  if (within_ == Within::kNothing || is_texts)
    return refuse("the header's " + std::string(kMetadataKey) + " are not texts by names");
  if (within_ == Within::kHeader)
    return refuse_tensor("it does not have exactly a dtype, a shape and data_offsets");
  if (key_ == "dtype") return refuse_tensor("its dtype is no text: such a type cannot be published");
  return refuse_tensor(key_ == "shape" ? "its shape is no list of whole numbers"
                                       : "its data_offsets are not two whole numbers");
}

bool HeaderReader::number_float(number_float_t /*number*/, const string_t& digits) {
  const std::string shown = digits.substr(0, 40);
  const bool is_whole = digits.find_first_not_of("-0123456789") == std::string::npos;
  return refuse(is_whole ? "the header has a number that is too large: " + shown
                         : "the header has the number " + shown + ", which is not whole");
}

bool HeaderReader::take(const std::string& digits, std::optional<std::uint64_t> number) {
  if (within_ == Within::kShape) {
    if (!number)
      return refuse_tensor("a dimension of its shape is " + digits +
                           "; it is a whole number from 0 to 2^63 - 1");
    tensor_.shape.push_back(*number);
    if (tensor_.shape.size() <= kMostDimensions) return true;
    return refuse_tensor("its shape has more than " + std::to_string(kMostDimensions) + " dimensions");
  }
  if (within_ != Within::kOffsets || offsets_.size() == 2) return refuse_value();
  if (!number) return refuse_tensor("one of its data_offsets is " + digits);
  offsets_.push_back(*number);
  return true;
}

bool HeaderReader::string(string_t& text) {
  if (within_ == Within::kMetadata) {
    header_.metadata.emplace(key_, text);
    return true;
  }
  if (within_ != Within::kTensor || key_ != "dtype") return refuse_value();
  tensor_.dtype = dtype_of_safetensors(text);
  return tensor_.dtype || refuse_tensor("elements of the type " + shown_name(text) + " cannot be published");
}

bool HeaderReader::start_object(std::size_t /*size*/) {
  switch (within_) {
    case Within::kNothing: within_ = Within::kHeader; return true;
    case Within::kHeader: within_ = name_ == kMetadataKey ? Within::kMetadata : Within::kTensor; break;
    default: return refuse_value();
  }
  keys_.clear();
  key_.clear();
  tensor_ = {};
  tensor_.name = name_;
  offsets_.clear();
  return true;
}

bool HeaderReader::begin_member(const std::string& name) {
  if (!names_.insert(name).second) return refuse("the header says " + shown_name(name) + " twice");
  name_ = name;
  if (name == kMetadataKey) return true;
  const auto named = check_array_name(name, "a tensor");
  return named || refuse(named.error().message);
}

bool HeaderReader::key(string_t& name) {
  if (within_ == Within::kHeader) return begin_member(name);
  if (!keys_.insert(name).second) return refuse("the header says " + shown_name(name) + " twice");
  key_ = name;
  if (within_ == Within::kMetadata) {
    const auto named = check_array_name(name, "a text of the metadata");
    return named || refuse(named.error().message);
  }
  return name == "dtype" || name == "shape" || name == "data_offsets" ||
         refuse_tensor("it does not have exactly a dtype, a shape and data_offsets");
}

bool HeaderReader::end_object() {
  if (within_ == Within::kTensor && !finish_tensor()) return false;
  within_ = within_ == Within::kHeader ? Within::kNothing : Within::kHeader;
  return true;
}

bool HeaderReader::finish_tensor() {
  if (keys_.size() != 3) return refuse_tensor("it does not have exactly a dtype, a shape and data_offsets");
  if (offsets_.size() != 2) return refuse_tensor("its data_offsets are not two whole numbers");
  const auto bytes = bytes_of_shape(tensor_.shape, tensor_.dtype->size);
  if (!bytes) return refuse_tensor("it has " + bytes.error().message);
  tensor_.begin = offsets_[0];
  tensor_.end = offsets_[1];
  if (tensor_.begin > tensor_.end || tensor_.end - tensor_.begin != *bytes) {
    return refuse_tensor("its data_offsets are [" + std::to_string(tensor_.begin) + ", " +
                         std::to_string(tensor_.end) + "], and its shape has " + std::to_string(*bytes) +
                         " bytes");
  }
  header_.tensors.push_back(std::move(tensor_));
  return header_.tensors.size() <= kMostArrays ||
         refuse("the file has more than " + std::to_string(kMostArrays) +
                " tensors; a region has no more arrays");
}

bool HeaderReader::start_array(std::size_t /*size*/) {
  if (within_ != Within::kTensor || key_ == "dtype") return refuse_value();
  within_ = key_ == "shape" ? Within::kShape : Within::kOffsets;
  return true;
}

bool HeaderReader::end_array() {
  within_ = Within::kTensor;
  return true;
}

}  // namespace

// The parser takes a NUL for the text's end.
Result<SafetensorsHeader> parse_safetensors(std::string_view text) {
  if (!text.starts_with('{')) {
    return Error{Code::kInvalidArgument, "this is no file of safetensors: its header does not begin with {"};
  }
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  if (text.find('\0') != std::string_view::npos)
    return Error{Code::kInvalidArgument, "the header is no JSON in UTF-8: it has a NUL"};
  HeaderReader reader;
  return reader.finish(nlohmann::json::sax_parse(text, &reader));
}

}  // namespace gpumem::cli
