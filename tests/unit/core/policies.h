#pragma once
#include <string>
#include <vector>

#include "daemon/core/words/policy.h"

namespace gpumem::core {

inline constexpr Bytes kPiece = mebibytes(2);

/// A device that lends all it has.
inline DevicePolicy device(std::string uuid, Bytes pool) {
  return {.uuid = std::move(uuid), .name = "Test GPU", .total = pool, .pool = pool, .granularity = kPiece};
}

inline TenantRule user(std::string name, std::uint32_t uid, std::vector<Quota> quotas,
                       std::string parent = "") {
  return {std::move(name), std::move(parent), uid, std::nullopt, std::move(quotas)};
}

inline TenantRule group(std::string name, std::uint32_t gid, std::vector<Quota> quotas,
                        std::string parent = "") {
  return {std::move(name), std::move(parent), std::nullopt, gid, std::move(quotas)};
}

/// What other tenants name as their parent.
inline TenantRule parent(std::string name, std::vector<Quota> quotas, std::string parent = "") {
  return {std::move(name), std::move(parent), std::nullopt, std::nullopt, std::move(quotas)};
}

/// One device GPU-0 of 64 MiB; ann (uid 1) and bob (uid 2) may have all of it, 16 MiB of it are ann's for
/// sure. Nobody else.
inline Policy small_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {user("ann", 1, {{mebibytes(16), mebibytes(64)}}), user("bob", 2, {{{}, mebibytes(64)}})};
  return policy;
}

inline Peer peer_of(std::uint32_t uid) {
  return {.pid = 1000 + uid, .uid = uid, .gids = {100 + uid}, .command = "train"};
}

}  // namespace gpumem::core
