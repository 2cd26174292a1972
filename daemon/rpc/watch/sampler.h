#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/broker/executor.h"
#include "daemon/core/words/observation.h"
#include "daemon/rpc/entitlement.h"
#include "daemon/rpc/watch/sample_table.h"

namespace gpumem::rpc {

/// How busy each device is, in the order of the policy; empty: not known. Does not block for long.
using ReadLoads = std::function<std::vector<core::DeviceLoad>()>;

/// What is sent of one sample.
struct TakenSample {
  /// An entry that not everybody may see.
  struct Line {
    std::string tenant;
    std::string bytes;
  };
  std::uint64_t number = 0;
  std::string tail;  ///< what is in the last message for everybody
  SampleTable::Messages changes;
  std::vector<Line> lines;
  Parents parents;
  std::vector<std::optional<core::Caller>> callers;  ///< of the viewers; none: the connection is gone
};

/// Copies what viewers see from the core, page by page, so that no call waits for more than one of them. The
/// pages are of different moments.
/// Threads  one, which is not the core's.
class ViewSampler {
 public:
  /// The most requests that are shown as waiting, of one tenant and in all.
  static constexpr std::size_t kMostOfTenant = 64;
  static constexpr std::size_t kMostWaiting = 256;

  /// `executor`  outlives it.
  ViewSampler(core::Executor& executor, ReadLoads read_loads)
      : executor_(executor), read_loads_(std::move(read_loads)) {}

  /// `viewers`  their connections. Nothing: the core has stopped.   Blocks  while the core is busy.
  using Connections = std::vector<std::optional<int>>;
  std::optional<TakenSample> take(const Connections& viewers);
  /// All lists of the latest sample.
  SampleTable::Messages whole() const { return table_.whole(); }

 private:
  bool copy_callers(const Connections& viewers, TakenSample& sample);
  bool copy_devices(TakenSample& sample);
  bool copy_tenants(TakenSample& sample);
  bool copy_jobs();
  bool copy_sessions(TakenSample& sample);
  bool copy_waiting(TakenSample& sample);

  core::Executor& executor_;
  const ReadLoads read_loads_;
  SampleTable table_;
  std::uint64_t number_ = 0;
  std::vector<std::string> devices_;  ///< UUIDs
};

}  // namespace gpumem::rpc
