#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpumem::core {

/// Names of tenants that begin so are of users without one.
inline constexpr std::string_view kUserTenantPrefix = "uid:";

inline std::string user_tenant(std::uint32_t uid) {
  return std::string(kUserTenantPrefix) + std::to_string(uid);
}

/// The number N of a tenant named `uid:N`; nothing for other names.
inline std::optional<std::uint32_t> user_of_tenant(const std::string& name) {
  if (!name.starts_with(kUserTenantPrefix)) return std::nullopt;
  std::uint32_t uid = 0;
  const auto read = std::from_chars(name.data() + kUserTenantPrefix.size(), name.data() + name.size(), uid);
  if (read.ec != std::errc() || name != user_tenant(uid)) return std::nullopt;  // one name for each
  return uid;
}

}  // namespace gpumem::core
