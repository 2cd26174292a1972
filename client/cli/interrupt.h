#pragma once
#include <signal.h>

#include <chrono>
#include <stop_token>
#include <thread>

#include "base/unique_fd.h"

namespace gpumem::cli {

/// While it lives, Ctrl-C and SIGTERM do not end the program but request a stop of it.
/// To be made before other threads are: they must not take the signals.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  bool happened() const { return stop_.stop_requested(); }
  /// False: interrupted meanwhile.   Blocks.
  bool wait(std::chrono::duration<double> time) const;

 private:
  void await();

  sigset_t before_{};
  std::stop_source stop_;
  UniqueFd signals_;
  UniqueFd over_;
  std::thread thread_;
};

}  // namespace gpumem::cli
