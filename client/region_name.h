#pragma once
#include <string>

#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem::client {

/// Whether it can name a region, or a tenant that has one: a frame has room for so much of it. The broker
/// checks all other rules for names.   Errors  kInvalidArgument.
Result<void> check_name(const std::string& name);
/// Checks the owner's name; empty for the session's own tenant.
Result<void> check_owner(const std::string& owner);
/// Errors  kInvalidArgument: a name that is too long, too many readers.
Result<void> check_publication(const std::string& name, const PublishOptions& options);

}  // namespace gpumem::client
