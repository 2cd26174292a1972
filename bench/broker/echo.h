#pragma once
#include "base/system/unique_fd.h"
#include "bench/broker/process.h"
#include "bench/samples.h"

namespace gpumem::bench {

/// A process that sends every byte back at once: what a call cannot be faster than. Two processes, one byte
/// each way, blocking calls: no polling, no protocol, two switches of the kernel.
class Echo {
 public:
  Echo();
  ~Echo();
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  Clock::duration round_trip() const;
  /// Until a byte is sent; it is answered, too.
  Clock::duration one_way() const;

 private:
  struct Ends {
    UniqueFd own;
    UniqueFd theirs;
  };
  explicit Echo(Ends ends);

  UniqueFd socket_;
  Process process_;
};

}  // namespace gpumem::bench
