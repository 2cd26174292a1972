#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/system/unique_fd.h"

namespace gpumem::test {

/// A user to run a program as. Only root can become another one.
struct User {
  uid_t uid;
  gid_t gid;
};

struct ChildOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments{};
  std::vector<std::pair<std::string, std::string>> environment{};  ///< besides the test's own
  std::optional<User> user{};
  std::optional<unsigned> open_files{};  ///< how many it may have at most
  int input = -1;                        ///< becomes standard input; none: /dev/null
  int output = -1;                       ///< becomes standard output and standard error; none: the test's own
  /// As a shell starts jobs: a group of its own. In the test's, which may be orphaned, the kernel ignores
  /// SIGTSTP.
  bool own_group = false;
};

/// A program started by the test. It is killed, if need be, when its owner goes.
class Child {
 public:
  explicit Child(const ChildOptions& options);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  bool running() const;
  void signal(int number);
  /// Waits for the end: the exit status, or less than zero, the negated signal. Fails the test, and kills
  /// the program, if it does not end in time.
  int wait();
  /// SIGKILL, and waits for the end.
  void kill();

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::optional<int> status_;
};

/// What a program that ran to its end has said.
struct Outcome {
  int status = 0;
  std::string output;  ///< standard output and standard error
};
Outcome run(ChildOptions options);

/// The targets of a process's open descriptors, without extents of simulated memory, and the number of its
/// threads. From /proc.
std::vector<std::string> open_descriptors(pid_t pid);
std::size_t threads(pid_t pid);

}  // namespace gpumem::test
