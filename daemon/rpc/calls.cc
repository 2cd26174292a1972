#include "daemon/rpc/calls.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/text/number.h"
#include "daemon/core/words/refusals.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {

void Calls::begin() {
  const MutexLock lock(mutex_);
  ++under_way_;
}

void Calls::end() {
  const MutexLock lock(mutex_);
  if (--under_way_ == 0) none_.notify_all();
}

Result<std::optional<std::uint64_t>> Calls::begin_unary(std::optional<int> connection) {
  const auto user = connection && account_of_ ? account_of_(*connection) : std::nullopt;
  const MutexLock lock(mutex_);
  ++under_way_;
  if (!user) return user;
  std::size_t& own = unary_[*user];
  if (own >= kMostUnaryOfUser)
    return core::refusal(core::Bound::kListings, "this user has " + std::to_string(kMostUnaryOfUser) +
                                                     " calls under way already; read their answers first");
  ++own;
  return user;
}

void Calls::uncount(std::optional<std::uint64_t> user) {
  if (!user) return;
  const MutexLock lock(mutex_);
  if (const auto own = unary_.find(*user); --own->second == 0) unary_.erase(own);
}

void Calls::await_none(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const MutexLock lock(mutex_);
  while (under_way_ != 0 && std::chrono::steady_clock::now() < deadline) none_.wait_until(mutex_, deadline);
}

Unary::Unary(Calls& calls, const grpc::CallbackServerContext& context) : calls_(calls) {
  auto begun = calls_.begin_unary(connection_of(context));
  if (begun) {
    user_ = *begun;
    return;
  }
  taken_ = false;
  Finish(to_status(begun.error()));
}

void Unary::Finish(const grpc::Status& status) {
  if (!status.ok()) calls_.uncount(std::exchange(user_, std::nullopt));
  ServerUnaryReactor::Finish(status);
}

void Unary::OnDone() {
  Calls& calls = calls_;
  calls.uncount(user_);
  delete this;
  calls.end();
}

// gRPC names a connection that it was given as a descriptor by that: `fd:17`.
std::optional<int> connection_of(const grpc::CallbackServerContext& context) {
  constexpr std::string_view kPrefix = "fd:";
  const std::string peer = context.peer();
  if (!peer.starts_with(kPrefix)) return std::nullopt;
  return whole_number<int>(std::string_view(peer).substr(kPrefix.size()));
}

Result<core::Caller> caller_of(const core::Executor& executor, std::optional<int> connection) {
  auto caller = connection ? executor.caller_of(*connection) : std::nullopt;
  if (caller) return std::move(*caller);
  return Error{Code::kUnauthenticated, "the connection of this call has ended: nobody is there to answer"};
}

}  // namespace gpumem::rpc
