#pragma once
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "daemon/core/executor.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/subscriber_limit.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

class Follower;

/// Events that may be unread before a follower is cut off, besides those that were kept when it came.
inline constexpr std::size_t kMostUnreadEvents = 4096;

/// One Monitor.WatchEvents. gRPC keeps it until OnDone; what the core's thread has of it is the Follower.
class EventStream final : public grpc::ServerWriteReactor<v1::Event> {
 public:
  EventStream(core::Executor& executor, Calls& calls, std::shared_ptr<SubscriberLimit> subscribers,
              const grpc::CallbackServerContext& context, const v1::WatchEventsRequest& request);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  core::Executor& executor_;
  Calls& calls_;
  std::shared_ptr<Follower> follower_;
};

}  // namespace gpumem::rpc
