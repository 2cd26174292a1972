#pragma once
#include <string>
#include <vector>

#include "daemon/pods/prepared_claims.h"

namespace gpumem::pods {

inline const std::string kAnna = "2f0c4a11-9f5d-4d1e-8a77-0a7f6d4c1b22",
                         kBert = "00000000-1111-2222-3333-444444444444",
                         kCarl = "11111111-1111-2222-3333-444444444444";

inline core::PodClaim claim(const std::string& uid, std::vector<core::Pod> pods,
                            std::vector<core::ClaimAmount> amounts = {
                                {"GPU-0", mebibytes(2), mebibytes(4)}}) {
  return {uid, "ml", "claim-" + uid, std::move(pods), std::move(amounts)};
}
inline core::Pod pod(const std::string& uid, const std::string& name) { return {uid, "ml", name}; }

inline PreparedClaims with(PreparedClaims claims, core::PodClaim claim) {
  return with_claim(std::move(claims), std::move(claim), [](const std::string&) { return false; });
}

}  // namespace gpumem::pods
