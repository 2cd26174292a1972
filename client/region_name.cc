#include "client/region_name.h"

#include "proto/lane/frames.h"

namespace gpumem::client {

Result<void> check_name(const std::string& name) {
  constexpr std::size_t kMost = sizeof(lane::RegionName);
  if (!name.empty() && name.size() <= kMost) return {};
  return Error{Code::kInvalidArgument,
               "a name has 1 to " + std::to_string(kMost) + " bytes, not " + std::to_string(name.size())};
}

Result<void> check_owner(const std::string& owner) {
  return owner.empty() ? Result<void>() : check_name(owner);
}

Result<void> check_publication(const std::string& name, const PublishOptions& options) {
  constexpr std::size_t kMost = std::tuple_size_v<decltype(lane::Publish::readers)>;
  if (auto right = check_name(name); !right) return right;
  if (options.readers.size() > kMost)
    return Error{Code::kInvalidArgument, "a region names " + std::to_string(kMost) + " tenants at most"};
  for (const std::string& reader : options.readers)
    if (auto right = check_name(reader); !right) return right;
  return {};
}

}  // namespace gpumem::client
