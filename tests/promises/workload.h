#pragma once
#include <random>

#include "tests/promises/configuration.h"
#include "tests/promises/world.h"

namespace gpumem::core::promises {

/// Processes that come, ask, give back, misbehave and go, at random. Of each user either all processes are
/// honest, or some.
class Workload {
 public:
  struct Habits {
    bool shares = false;     ///< processes publish regions, and map each other's
    bool jobs = false;       ///< processes begin jobs, join them, and reserve memory for them
    bool contexts = false;   ///< the driver lacks memory for their contexts
    bool elastic = false;    ///< pools are
    bool host = false;       ///< the last device is the host store
    bool read_late = false;  ///< the broker finds lanes unread when sessions are to be ended
  };
  Workload(World& world, std::uint32_t users, Habits habits, std::mt19937_64& random);

  /// One thing that somebody does, or time that passes.
  void step();

 private:
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  Process* some_process();
  DeviceIndex some_device() { return below(world_.broker.device_count()); }
  Bytes some_of(Bytes most) { return Bytes{below(most.count + 1)}; }

  void arrive();
  Traits some_traits();
  void pass_time();
  void act(Process& process);
  void grow(Process& process);
  void grow_hugely(Process& process);
  void share(Process& process);
  void reserve(Process& process);
  void begin_context(Process& process);
  void pin(Process& process);
  void lie_about_contexts(Process& process);
  void connect(Process& process);
  void misbehave(Process& process);
  void take_past(Process& process);
  void churn(Process& process);

  World& world_;
  Habits habits_;
  std::mt19937_64& random_;
  std::vector<std::uint32_t> honest_;   ///< uids
  std::vector<std::uint32_t> hostile_;  ///< uids, of which some processes are honest all the same
};

}  // namespace gpumem::core::promises
