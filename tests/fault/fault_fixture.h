#pragma once
#include <string>

#include "sim/control/faults.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {

/// A broker and its clients on a machine whose driver is made to fail, for one process at a time.
class FaultTest : public BrokerTest {
 protected:
  using BrokerTest::BrokerTest;

  sim::Machine machine() const { return sim::load_machine(broker_.driver_folder()).value(); }
  /// Puts a fault (sim/control/faults.h) in force for process `pid`.
  void inject(const std::string& rule, pid_t pid);
  void inject_into_broker(const std::string& rule) { inject(rule, broker_.pid()); }
  /// Calls hit so far by the only fault in force.
  std::uint64_t hits() const;
  /// Ends all faults; they must have hit something, or the test has shown nothing.
  void heal();
  /// A client can borrow the whole pool, which it finds zeroed, and then nothing is left of it.
  void expect_whole_pool_lendable();
};

}  // namespace gpumem::test
