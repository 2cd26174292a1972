#pragma once
#include <functional>

#include "daemon/core/admin.h"

// What an administrator may ask about claims of pods, once for every transport.

namespace gpumem::api {

/// What somebody is told who is no administrator and asks for what only they may. kPermissionDenied.
Error no_administrator(const core::Caller& caller);

using ClaimAnswer = std::function<void(Result<void>)>;

/// Errors  kPermissionDenied (no administrator); kInvalidArgument: no names of Kubernetes, no pods, pods of
///         another namespace, no amounts, or a limit that is nothing or less than the guarantee; and those of
///         core::PodClaimAdmin::prepare. `answer` is called once, by whichever thread.
void prepare_claim(core::PodClaimAdmin& claims, const core::Caller& caller, core::PodClaim claim,
                   ClaimAnswer answer);
/// Errors  kPermissionDenied, kInvalidArgument (no UID), and those of core::PodClaimAdmin::unprepare.
void unprepare_claim(core::PodClaimAdmin& claims, const core::Caller& caller, std::string uid,
                     ClaimAnswer answer);
/// Errors  kPermissionDenied.
void list_claims(core::PodClaimAdmin& claims, const core::Caller& caller,
                 std::function<void(Result<std::vector<core::PodClaim>>)> answer);

}  // namespace gpumem::api
