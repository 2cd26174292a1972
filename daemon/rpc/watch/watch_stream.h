#pragma once
#include <memory>

#include "daemon/rpc/calls.h"
#include "daemon/rpc/event_stream.h"
#include "daemon/rpc/watch/viewing.h"

namespace gpumem::rpc {

/// One Monitor.Watch. gRPC keeps it until OnDone. Other threads know its Viewer alone.
class WatchStream final : public Viewer::Stream {
 public:
  WatchStream(core::Executor& executor, Calls& calls, std::shared_ptr<Viewing> viewing,
              const std::shared_ptr<SubscriberLimit>& limit, const grpc::CallbackServerContext& context);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  Calls& calls_;
  const std::shared_ptr<Viewing> viewing_;
  const std::shared_ptr<Viewer> viewer_;
};

}  // namespace gpumem::rpc
