#pragma once
#include <string>

#include "daemon/core/executor.h"

namespace gpumem::rpc {

// Who may see what. Nobody is told more of others than the listings tell anyone.

/// What happens to `tenant`: administrators everything, others what their own tenant does, and what belongs
/// to it.
bool may_follow(const core::Caller& caller, const std::string& tenant, const core::Broker& broker);

/// A denial's words speak of who holds what: they are for its own tenant and for administrators.
bool may_read_words(const core::Caller& caller, const core::Event& event);

/// How `tenant` stands: as may_follow(), and those that the caller's tenant belongs to.
bool may_ask_about(const core::Caller& caller, const std::string& tenant, const core::Broker& broker);

/// What somebody is told who may not follow, or ask about, `tenant`.
Error may_not_follow(const core::Caller& caller, const std::string& tenant);
Error may_not_ask_about(const core::Caller& caller, const std::string& tenant);

}  // namespace gpumem::rpc
