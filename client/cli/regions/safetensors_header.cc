#include "client/cli/regions/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "client/cli/regions/array_name.h"
#include "client/cli/regions/safetensors_json.h"

namespace gpumem::cli {
namespace {

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as the format has it
constexpr std::uint64_t kLengthBytes = 8;

Error no_safetensors(const std::string& why) {
  return {Code::kInvalidArgument, "this is no file of safetensors: " + why};
}

Result<std::string> read_all(const SourceFile& file, std::uint64_t at, std::uint64_t count) {
  std::string text(count, '\0');
  for (std::uint64_t done = 0; done < count;) {
    const auto more = file.read(std::span(text).subspan(done), at + done);
    if (!more) return more.error();
    done += *more;
  }
  return text;
}

// Bounds come before memory: the length is whatever the file says.
Result<std::string> read_text(const SourceFile& file) {
  const std::uint64_t size = file.size();
  if (size < kLengthBytes) return no_safetensors("it has " + std::to_string(size) + " bytes");
  const auto first = read_all(file, 0, kLengthBytes);
  if (!first) return first.error();
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>((*first)[i]);
  if (length > kMostHeaderBytes) {
    return no_safetensors("its header would have " + std::to_string(length) + " bytes, and it has " +
                          std::to_string(kMostHeaderBytes) + " at most");
  }
  if (const std::uint64_t there = size - kLengthBytes; there < length) {
    return Error{Code::kInvalidArgument, "the file is truncated: its header has " + std::to_string(length) +
                                             " bytes, and " + std::to_string(there) + " are there"};
  }
  return read_all(file, kLengthBytes, length);
}

// Tensors fill the file behind its header, one after the other.
Result<void> check_order(const std::vector<Tensor>& tensors, std::uint64_t data, std::uint64_t size) {
  std::uint64_t at = data;
  std::string before = "the header";
  for (const Tensor& tensor : tensors) {
    if (tensor.begin != at) {
      return Error{
          Code::kInvalidArgument,
          "tensor " + shown_name(tensor.name) +
              (tensor.begin < at ? " overlaps with "
                                 : " leaves " + std::to_string(tensor.begin - at) + " bytes behind ") +
              before};
    }
    at = tensor.end;
    before = "tensor " + shown_name(tensor.name);
  }
  if (at == size) return {};
  return Error{Code::kInvalidArgument, "the file has " + std::to_string(size) +
                                           " bytes, and its tensors end at " + std::to_string(at) +
                                           (at > size ? ": it is truncated" : "")};
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

Result<SafetensorsHeader> SafetensorsHeader::read(const SourceFile& file) {
  const auto text = read_text(file);
  if (!text) return text.error();
  auto header = parse_safetensors(*text);
  if (!header) return header;
  const std::uint64_t data = kLengthBytes + text->size();
  for (Tensor& tensor : header->tensors) {
    tensor.begin += data;
    tensor.end += data;
  }
  std::ranges::stable_sort(header->tensors, {},
                           [](const Tensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  if (auto right = check_order(header->tensors, data, file.size()); !right) return right.error();
  return header;
}

std::string SafetensorsHeader::text() const {
  constexpr std::size_t kAlignment = 8;
  std::string json = "{";
  if (!metadata.empty()) json += R"("__metadata__":)" + nlohmann::json(metadata).dump();
  std::uint64_t at = 0;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t end = at + (tensor.end - tensor.begin);
    json += (json.size() > 1 ? "," : "") + quoted(tensor.name) + R"(:{"dtype":")" +
            std::string(tensor.dtype->safetensors) + R"(","shape":)" + nlohmann::json(tensor.shape).dump() +
            R"(,"data_offsets":[)" + std::to_string(at) + "," + std::to_string(end) + "]}";
    at = end;
  }
  json += '}';
  json.append((kAlignment - json.size() % kAlignment) % kAlignment, ' ');
  std::string text;
  for (unsigned shift = 0; shift < 64; shift += 8)
    text += static_cast<char>(std::uint64_t{json.size()} >> shift);
  return text + json;
}

}  // namespace gpumem::cli
