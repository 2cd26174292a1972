#include "cuda/uuid.h"

#include <charconv>

namespace gpumem::cuda {

std::string to_string(const DeviceUuid& uuid) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kHex[uuid.bytes[i] >> 4];
    text += kHex[uuid.bytes[i] & 15];
  }
  return text;
}

Result<DeviceUuid> parse_device_uuid(std::string_view text) {
  const Error invalid{
      Code::kInvalidArgument,
      "'" + std::string(text) +
          "' is no device UUID; write GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx (nvidia-smi -L)"};
  if (text.starts_with("GPU-")) text.remove_prefix(4);
  if (text.size() != 36) return invalid;
  DeviceUuid uuid;
  std::size_t at = 0;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i, at += 2) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      if (text[at++] != '-') return invalid;
    }
    const char* digits = text.data() + at;
    const auto [end, error] = std::from_chars(digits, digits + 2, uuid.bytes[i], 16);
    if (error != std::errc() || end != digits + 2) return invalid;
  }
  return uuid;
}

}  // namespace gpumem::cuda
