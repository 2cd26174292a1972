#pragma once
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/core/broker/executor.h"
#include "daemon/rpc/calls.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

/// A subscriber of events by a stream: selects the events that the caller may see, and writes them as fast as
/// they are read.
/// Invariant  the stream is finished once; nothing is written after that.
/// Threads    any; what core::EventWatcher says and begin(): the core's.
class EventSubscriber final : public core::EventWatcher {
 public:
  using Stream = grpc::ServerWriteReactor<v1::Event>;
  struct Filter {
    std::string tenant;  ///< only of this one and of what belongs to it; empty: all
    bool follow = false;
  };
  EventSubscriber(Stream& stream, Filter filter) : filter_(std::move(filter)), stream_(&stream) {}

  /// Finds the caller again; called on the core's thread. Errors  kUnauthenticated: the connection is gone.
  using FindCaller = std::function<Result<core::Caller>()>;

  /// Sets the caller and the subscription. Must come before the first event.
  void begin(core::Caller caller, FindCaller find_caller, const core::Broker& broker,
             std::shared_ptr<void> subscription);
  /// Ends the stream with `error`, before the first event.
  void refuse(const Error& error);

  bool tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker& broker) override;
  bool caught_up() override;
  bool judge(const core::Broker& broker) override;
  void closed() override;

  /// Called by the stream: its last write is done; the call is over.
  void written(bool ok);
  void cancelled();

 private:
  bool is_wanted(const std::string& tenant, const core::Broker& broker);
  void write_next() GPUMEM_REQUIRES(mutex_);
  void finish(const grpc::Status& status) GPUMEM_REQUIRES(mutex_);

  const Filter filter_;
  FindCaller find_caller_;              ///< set by begin()
  core::Caller caller_;                 ///< set by begin() and judge(), on the core's thread, with the mutex
  bool live_ = false;                   ///< used by the core's thread alone, like wanted_
  std::map<std::string, bool> wanted_;  ///< by tenant, while the kept events are told, which may be many

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

/// How many may follow events: so many in all, and so many for each user.
/// Threads  any.
class SubscriberLimit : public std::enable_shared_from_this<SubscriberLimit> {
 public:
  static constexpr std::size_t kMax = 128;
  static constexpr std::size_t kMaxPerUser = 16;

  /// Counts one more of `account` until the answer and its copies are gone; nothing if that would be too
  /// many. An administrator finds a place whatever others have.
  std::shared_ptr<void> add(std::uint64_t account, bool is_admin = false);

 private:
  void remove(std::uint64_t account);

  Mutex mutex_;
  std::size_t count_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::size_t> by_user_ GPUMEM_GUARDED_BY(mutex_);
};

/// Events that may be unread before a subscriber is cut off, besides those that were kept when it came.
inline constexpr std::size_t kMostUnreadEvents = 4096;

/// One Monitor.WatchEvents. gRPC keeps it until OnDone. The core's thread knows its EventSubscriber alone.
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
  std::shared_ptr<EventSubscriber> subscriber_;
};

}  // namespace gpumem::rpc
