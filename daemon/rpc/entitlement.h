#pragma once
#include <map>
#include <set>
#include <string>

#include "daemon/core/broker/executor.h"

namespace gpumem::rpc {

// Rules for what a caller may see. A caller learns no more about other tenants than the listings show to
// everybody.

/// Whether the caller may follow the events of `tenant`. Administrators and the reader of accounts may follow
/// all; others their own tenant, and tenants below it.
bool may_follow(const core::Caller& caller, const std::string& tenant, const core::Broker& broker);

/// The parent of each tenant that has one.
using Parents = std::map<std::string, std::string>;
/// As above without the reader, by a copy of the tree. Threads  any.
bool may_follow(const core::Caller& caller, const std::string& tenant, const Parents& parents);

/// Tells whether any of several callers may follow a tenant, at the cost of one caller.
class Followers {
 public:
  void add(const core::Caller& caller);
  bool may_follow(const std::string& tenant, const Parents& parents) const;

 private:
  bool has_admin_ = false;
  std::set<std::string> tenants_;
};

/// A denial's words speak of who holds what: they are for its own tenant, the reader and administrators.
bool may_read_words(const core::Caller& caller, const core::Event& event);

/// The sum of a session or a job is for its own user, the reader and administrators.
bool may_read_closing(const core::Caller& caller, const core::Event& event);

/// How `tenant` stands: as may_follow(), without the reader, and those that the caller's tenant belongs to.
bool may_ask_about(const core::Caller& caller, const std::string& tenant, const core::Broker& broker);

/// The account of `tenant`, which may be gone: as may_ask_about(), and a user's own. The reader may see all.
/// Everybody may see the account of the whole device, which has no name.
bool may_read_account(const core::Caller& caller, const std::string& tenant, const core::Broker& broker);

/// The error for a caller that may not follow, or ask about, `tenant`.
Error may_not_follow(const core::Caller& caller, const std::string& tenant);
Error may_not_ask_about(const core::Caller& caller, const std::string& tenant);

}  // namespace gpumem::rpc
