// Any text as the header of a file of safetensors, and any bytes as the layout at a region's end: both say
// where arrays lie.
#include <algorithm>

#include "client/cli/regions/array_layout.h"
#include "client/cli/regions/safetensors_json.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

using cli::ArrayLayout, cli::ArrayPlace, cli::Tensor;

constexpr std::uint64_t kRoom = std::uint64_t{1} << 20;
constexpr std::size_t kLengthBytes = 8;

void require_same(const cli::SafetensorsHeader& read, const cli::SafetensorsHeader& again) {
  require(again.metadata == read.metadata && again.tensors.size() == read.tensors.size(),
          "what is read is what was written");
  for (std::size_t i = 0; i < read.tensors.size(); ++i) {
    const Tensor &one = read.tensors[i], &other = again.tensors[i];
    require(one.name == other.name && one.dtype == other.dtype && one.shape == other.shape &&
                one.end - one.begin == other.end - other.begin,
            "a tensor is read as it was written");
  }
}

void read_header(std::string_view bytes) {
  const auto header = cli::parse_safetensors(bytes);
  if (!header) return require(!header.error().message.empty(), "an error has words");
  for (const Tensor& tensor : header->tensors) {
    require(tensor.dtype != nullptr && !tensor.dtype->safetensors.empty(), "a tensor has a type");
    const auto size = cli::bytes_of_shape(tensor.shape, tensor.dtype->size);
    require(size && tensor.begin <= tensor.end && tensor.end - tensor.begin == *size,
            "a tensor has the size of its shape");
  }
  const auto again = cli::parse_safetensors(header->text().substr(kLengthBytes));
  require(again.has_value(), "what is written can be read");
  require_same(*header, *again);
}

void read_layout(std::string_view bytes) {
  const auto layout = ArrayLayout::decode(bytes, kRoom);
  if (!layout) return require(!layout.error().message.empty(), "an error has words");
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const ArrayPlace& array : layout->arrays) {
    require(array.offset <= kRoom && array.bytes() <= kRoom - array.offset, "an array lies in the region");
    if (array.bytes() != 0) places.emplace_back(array.offset, array.offset + array.bytes());
  }
  std::ranges::sort(places);
  for (std::size_t i = 1; i < places.size(); ++i)
    require(places[i - 1].second <= places[i].first, "no array lies over another");
  const auto written = layout->encode();
  require(written.has_value(), "what is read can be written");
  const auto again = ArrayLayout::decode(*written, kRoom);
  require(again.has_value() && again->encode().value() == *written, "what is written can be read");
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  gpumem::fuzz::read_header(bytes);
  gpumem::fuzz::read_layout(bytes);
  return 0;
}
