#pragma once
#include <filesystem>

#include "bench/broker/process.h"
#include "bench/samples.h"
#include "bench/temporary_folder.h"

namespace gpumem::bench {

/// A process that greets whoever connects, and does only what a broker must. It asks the kernel who that is
/// (credentials, pidfd, cgroup, start). It writes a record, and answers with two pages and a pipe. A
/// connection to a broker that asks the same cannot be faster.
class Greeter {
 public:
  Greeter();
  ~Greeter();

  /// From the call until both pages are mapped.
  Clock::duration connect() const;

 private:
  std::filesystem::path socket() const { return folder_.path() / "socket"; }

  TemporaryFolder folder_;
  Process process_;
};

}  // namespace gpumem::bench
