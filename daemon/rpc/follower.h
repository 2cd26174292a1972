#pragma once
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/core/executor.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

/// A subscriber of events by a stream: selects the events that the caller may see, and writes them as fast as
/// they are read.
/// Invariant  the stream is finished once; nothing is written after that.
/// Threads    any; what core::EventWatcher says and begin(): the core's.
class Follower final : public core::EventWatcher {
 public:
  using Stream = grpc::ServerWriteReactor<v1::Event>;
  struct Wish {
    std::string tenant;  ///< only of this one and of what belongs to it; empty: all
    bool follow = false;
  };
  Follower(Stream& stream, Wish wish) : wish_(std::move(wish)), stream_(&stream) {}

  /// Before it is told of anything: who follows, the devices' names, and the place it takes up.
  void begin(core::Caller caller, const core::Broker& broker, std::shared_ptr<void> subscription);
  /// Ends the stream now, for what came before the first event.
  void refuse(const Error& error);

  bool tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker& broker) override;
  bool caught_up() override;
  void closed() override;

  /// The stream's own: its last write is done; the call is over.
  void written(bool ok);
  void cancelled();

 private:
  bool is_wanted(const std::string& tenant, const core::Broker& broker);
  void write_next() GPUMEM_REQUIRES(mutex_);
  void finish(const grpc::Status& status) GPUMEM_REQUIRES(mutex_);

  const Wish wish_;
  core::Caller caller_;                 ///< once begun, as it is
  bool live_ = false;                   ///< this and the next are the core's thread's alone
  std::map<std::string, bool> wanted_;  ///< of tenants, while what was kept is told: it may be much

  Mutex mutex_;
  Stream* stream_ GPUMEM_GUARDED_BY(mutex_);  ///< until it is finished
  std::shared_ptr<void> subscription_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<std::string> devices_ GPUMEM_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<const core::LoggedEvent>> unread_ GPUMEM_GUARDED_BY(mutex_);
  std::size_t room_ GPUMEM_GUARDED_BY(mutex_) = 0;  ///< for `unread_`, once all that was kept is told
  std::optional<grpc::Status> end_ GPUMEM_GUARDED_BY(mutex_);  ///< when all is read
  bool writing_ GPUMEM_GUARDED_BY(mutex_) = false;
  v1::Event message_;  ///< being written
};

}  // namespace gpumem::rpc
