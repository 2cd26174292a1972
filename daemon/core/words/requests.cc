#include "daemon/core/words/requests.h"

#include <span>

#include "base/random.h"
#include "base/text/printable.h"
#include "shm/pages.h"

namespace gpumem::core {
namespace {

// Also where one is looked for: the answer shows the name.
Result<void> check_region_name(std::string_view name) {
  if (!name.empty() && check_label(name)) return {};
  return Error{Code::kInvalidArgument,
               "a region's name has 1 to " + std::to_string(kLabelBytes) + " printable bytes"};
}

// The first bytes of a handle. The rest is random.
constexpr std::string_view kHandleMark = "GPUMEMH1";

}  // namespace

Result<void> check_device_name(std::string_view device) {
  if (device.size() <= kLabelBytes) return {};
  return Error{Code::kInvalidArgument, "the device's name is too long to be a UUID"};
}

Result<void> check(const OpenSlice& request) {
  if (auto label = check_label(request.label); !label) return label;
  return check_device_name(request.device);
}

Result<void> check(const Grow& request) {
  if (request.parts.empty()) return Error{Code::kInvalidArgument, "a growth needs at least one part"};
  if (request.parts.size() <= kMaxDevices) return {};
  return Error{Code::kInvalidArgument, "a growth has one part for each device, " +
                                           std::to_string(kMaxDevices) + " at most, not " +
                                           std::to_string(request.parts.size())};
}

Result<void> check(const BeginJob& request) {
  if (auto label = check_label(request.label); !label) return label;
  const auto is_one = [](Bytes limit, std::uint64_t points) {
    return (limit.is_zero() || points == 0) && points <= 10'000;
  };
  if (is_one(request.limit, request.limit_points) && is_one(request.host_limit, request.host_limit_points))
    return {};
  return Error{Code::kInvalidArgument,
               "the limit of a job is an amount, or at most 100% of what its tenant can have"};
}

Result<void> check(const ReserveForJob& request) { return check_device_name(request.device); }

Result<void> check(const ImportHandle& request) {
  if (std::string_view(request.handle.data(), request.handle.size()).starts_with(kHandleMark)) return {};
  return Error{Code::kInvalidArgument,
               "these 64 bytes are no handle of gpumem's (CUDA's own are opened by cuIpcOpenMemHandle)"};
}

Result<void> check(const Publish& request) {
  if (auto named = check_region_name(request.name); !named) return named;
  for (const std::string& reader : request.readers)
    if (auto name = check_label(reader); !name) return name;
  if (request.sharing <= Sharing::kNamed) return {};
  return Error{Code::kInvalidArgument, "the broker knows no such kind of sharing"};
}

Result<void> check(const MapRegion& request) {
  if (auto named = check_region_name(request.name); !named) return named;
  if (auto owner = check_label(request.owner); !owner) return owner;
  if (request.how > MapAs::kWriter)
    return Error{Code::kInvalidArgument, "a region is mapped as a reader, as its owner or as a writer"};
  if (auto device = check_device_name(request.device); !device) return device;
  if (request.version != 0 && request.newer_than != 0)
    return Error{Code::kInvalidArgument, "a request is for one version, or for one newer than another"};
  return {};
}

Result<void> check(const RemoveRegion& request) { return check_region_name(request.name); }

HandleBytes new_handle() {
  HandleBytes bytes{};
  std::ranges::copy(kHandleMark, bytes.begin());
  fill_random(std::span(bytes).subspan(kHandleMark.size()));
  return bytes;
}

}  // namespace gpumem::core
