#pragma once
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/core/broker/admin.h"
#include "daemon/host/config/claim_store.h"
#include "daemon/host/config/policy_compiler.h"
#include "daemon/host/config/quota_store.h"

namespace gpumem::host {

/// The quotas in force: the configuration, the quotas set at run time, and the claims prepared for pods.
/// Changes are made one at a time. Each takes effect as a whole, on the disk and in the core, or not at all.
///
/// Threads  any. Functions with `_now` in their names wait for the disk and for the core's thread, so that
///          thread must not call them. The others leave the work to a thread of their own.
class LiveQuotas final : public core::QuotaAdmin, public core::PodClaimAdmin {
 public:
  /// How the core is reached. Both wait for it.
  struct Core {
    std::function<Result<void>(core::Policy policy, std::string cause)> apply;
    std::function<std::vector<core::TenantView>()> tenants;
  };
  struct Options {
    Config config;
    std::vector<DeviceFacts> devices;
    QuotaStore store;
    Core core;
    ClaimStore claims{};
  };
  /// The policy of `options` is in force already: see compile_in_force().
  explicit LiveQuotas(Options options);
  ~LiveQuotas() override;

  void list(std::function<void(Result<core::QuotaList>)> answer) override;
  void set(core::QuotaChange change, core::Caller caller,
           std::function<void(Result<core::QuotaOutcome>)> answer) override;

  void prepare(core::PodClaim claim, core::Caller caller, std::function<void(Result<void>)> answer) override;
  void unprepare(std::string uid, core::Caller caller, std::function<void(Result<void>)> answer) override;
  void list_claims(std::function<void(Result<std::vector<core::PodClaim>>)> answer) override;

  Result<core::QuotaList> list_now();
  /// Errors  as QuotaAdmin::set.
  Result<core::QuotaOutcome> set_now(const core::QuotaChange& change, const core::Caller& caller);
  /// Puts another configuration in force under the same run-time quotas. Errors  as compile_policy,
  /// Broker::apply.
  Result<void> reload_now(Config config);
  /// Errors  as PodClaimAdmin::prepare, unprepare.
  Result<void> prepare_now(const core::PodClaim& claim, const core::Caller& caller);
  Result<void> unprepare_now(const std::string& uid, const core::Caller& caller);
  std::vector<core::PodClaim> claims_now();

 private:
  struct Step;
  Result<void> check_tenant(const std::string& name, const Step& step) GPUMEM_REQUIRES(mutex_);
  Result<void> put_in_force(Step step, const core::Peer& by) GPUMEM_REQUIRES(mutex_);
  Result<void> put_in_force(pods::PreparedClaims next, const std::string& cause) GPUMEM_REQUIRES(mutex_);
  std::vector<core::QuotaLine> lines_of(const core::Policy& policy, const QuotaOverlay& overlay,
                                        const core::QuotaChange& change) const;

  const std::vector<DeviceFacts> devices_;
  const Core core_;
  Mutex mutex_;
  Config config_ GPUMEM_GUARDED_BY(mutex_);
  QuotaStore store_ GPUMEM_GUARDED_BY(mutex_);
  ClaimStore claims_ GPUMEM_GUARDED_BY(mutex_);
  boost::asio::thread_pool worker_{1};
};

/// The policy of `config` under the quotas of `overlay`, with what is prepared for pods; what of these cannot
/// be applied goes into the log.
/// Errors  as compile_policy; they mention the quotas set at run time, and the claims, if there are any.
Result<core::Policy> compile_in_force(const Config& config, const std::vector<DeviceFacts>& devices,
                                      const QuotaOverlay& overlay, const pods::PreparedClaims& claims);

}  // namespace gpumem::host
