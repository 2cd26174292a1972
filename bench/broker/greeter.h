#pragma once
#include "base/system/unique_fd.h"
#include "bench/broker/process.h"
#include "bench/samples.h"

namespace gpumem::bench {

/// A process that greets whoever connects, and does only what a broker must. It asks the kernel who that is
/// (credentials, pidfd, cgroup, start). It writes a record, and answers with two pages and a pipe. A
/// connection to a broker that asks the same cannot be faster.
class Greeter {
 public:
  Greeter();
  ~Greeter();
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;

  /// From the call until both pages are mapped.
  Clock::duration connect() const;

 private:
  struct Listening {
    UniqueFd socket;
    std::string name;
  };
  explicit Greeter(Listening listening);
  static Listening listen();

  std::string name_;
  Process process_;
};

}  // namespace gpumem::bench
