#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/system/unique_fd.h"

namespace gpumem::bench {

/// A process of this benchmark's own, with a pipe to its standard input and one from its standard output.
/// It gets SIGTERM when the benchmark dies.
class Process {
 public:
  /// Starts `command` (path, then arguments). `inherited` stays open there, under the same number.
  static Process start(const std::vector<std::string>& command, int inherited = -1);
  /// Starts this program again, in one of its roles (roles.h).
  static Process start_role(const std::string& role, std::vector<std::string> arguments, int inherited = -1);
  Process(Process&&) noexcept;
  Process& operator=(Process&&) = delete;
  /// Closes its input, and waits for its end.
  ~Process();

  pid_t pid() const { return pid_; }
  /// Waits until the process says that it is where it should be.
  void await_ready();
  /// Sends a command, one byte, and waits until it is carried out.
  void command(char what);
  /// Waits for a number that the process tells.
  std::uint64_t receive_number();
  void signal(int number) const;
  /// Waits for its end.
  void join();

 private:
  Process(pid_t pid, UniqueFd input, UniqueFd output)
      : pid_(pid), input_(std::move(input)), output_(std::move(output)) {}

  pid_t pid_;
  UniqueFd input_;
  UniqueFd output_;
};

// Calls of the started process, in its role:

/// Tells the benchmark that this process is where it should be.
void announce_ready();
void tell_number(std::uint64_t number);
/// The next command; 0: the benchmark wants no more.
char next_command();

}  // namespace gpumem::bench
