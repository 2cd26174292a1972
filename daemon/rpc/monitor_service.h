#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "daemon/core/broker/executor.h"
#include "daemon/core/words/observation.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/event_stream.h"
#include "daemon/rpc/snapshots.h"
#include "daemon/rpc/watch/watch_stream.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::rpc {

/// What the listings say of the broker itself.
struct BrokerInfo {
  std::string version;
  std::string driver;
  core::Observer* observer =
      nullptr;        ///< that looks at the devices' memory; outlives the service; none: nobody does
  ReadLoads loads{};  ///< callable as long as the service is there
  core::TimePoint started = std::chrono::steady_clock::now();
};

/// gpumem.v1.Monitor: listings for anyone who may connect; what tells of somebody's waiting and doing for
/// those whom entitlement.h names.
class MonitorService final : public v1::Monitor::WithRawCallbackMethod_Watch<v1::Monitor::CallbackService> {
 public:
  MonitorService(core::Executor& executor, Calls& calls, BrokerInfo info)
      : executor_(executor), calls_(calls), info_(std::move(info)), snapshots_(executor) {}
  ~MonitorService() override { stop(); }

  /// Ends the streams of Watch, which do not end by themselves.
  void stop() { viewing_->stop(); }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ListTenants(grpc::CallbackServerContext* context,
                                        const v1::ListTenantsRequest* request,
                                        v1::ListTenantsResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* ListAccounts(grpc::CallbackServerContext* context,
                                         const v1::ListAccountsRequest* request,
                                         v1::ListAccountsResponse* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* ListRegions(grpc::CallbackServerContext* context,
                                        const v1::ListRegionsRequest* request,
                                        v1::ListRegionsResponse* response) override;
  grpc::ServerUnaryReactor* Reconcile(grpc::CallbackServerContext* context,
                                      const v1::ReconcileRequest* request,
                                      v1::ReconcileResponse* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override;
  grpc::ServerWriteReactor<v1::Event>* WatchEvents(grpc::CallbackServerContext* context,
                                                   const v1::WatchEventsRequest* request) override;
  /// Raw: viewers share the bytes of a sample.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;

 private:
  core::Executor& executor_;
  Calls& calls_;
  BrokerInfo info_;
  std::shared_ptr<SubscriberLimit> subscribers_ = std::make_shared<SubscriberLimit>();
  std::shared_ptr<SubscriberLimit> viewers_ = std::make_shared<SubscriberLimit>();
  std::shared_ptr<Viewing> viewing_ = std::make_shared<Viewing>(executor_, info_.loads);
  std::size_t refusing_ = 0;  // looks, held back; the core's thread's
  Snapshots snapshots_;
};

}  // namespace gpumem::rpc
