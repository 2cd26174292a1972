#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "daemon/rpc/watch/sampler.h"
#include "daemon/rpc/watch/viewer.h"

namespace gpumem::rpc {

/// Makes one sample a second for all viewers, on a thread of its own, while there are any. It goes to one
/// viewer after the other, over four fifths of the second at most. Threads  any.
class Viewing {
 public:
  static constexpr std::chrono::seconds kPeriod{1};
  static constexpr std::chrono::milliseconds kMostPause{10};  ///< between two viewers

  /// `executor`  outlives it.
  Viewing(core::Executor& executor, ReadLoads read_loads);
  /// As stop().
  ~Viewing();
  Viewing(const Viewing&) = delete;
  Viewing& operator=(const Viewing&) = delete;

  /// The viewer gets each sample from the next on, until remove().
  void add(std::shared_ptr<Viewer> viewer);
  void remove(const Viewer& viewer);
  /// Ends all streams, and those that come.   Blocks  while a sample is being made.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Viewers = std::vector<std::shared_ptr<Viewer>>;

  void work();
  bool await_turn(Viewers& viewers);
  bool rest(Clock::duration pause);
  void send(const Viewers& viewers);

  ViewSampler sampler_;  ///< the thread's, like `next_`
  Clock::time_point next_ = Clock::now();
  Mutex mutex_;
  Condition wake_;
  Viewers viewers_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

/// The messages of one sample, for many viewers: what several of them get is encoded, and kept, once.
class SampleMessages {
 public:
  /// Both outlive it.
  SampleMessages(const TakenSample& sample, const ViewSampler& sampler)
      : sample_(sample), sampler_(sampler) {}

  /// The messages for `caller`: all of the sample if `whole`, else the changes since the sample before.
  Viewer::Messages of(const core::Caller& caller, bool whole);

 private:
  using Slices = std::vector<grpc::Slice>;

  const grpc::Slice& lines_for(const core::Caller& caller);
  static Slices slices_of(const SampleTable::Messages& messages);

  const TakenSample& sample_;
  const ViewSampler& sampler_;
  const grpc::Slice tail_{sample_.tail};
  Slices whole_;
  Slices changes_;
  std::map<std::optional<std::string>, grpc::Slice> lines_;  ///< by tenant; none: an administrator's
};

}  // namespace gpumem::rpc
