#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/system/unique_fd.h"
#include "tests/support/child.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::test {

/// A program that goes on step by step: its standard input is a socket, by which it and the test tell each
/// other that something is done. Nobody sleeps for the other. The program's side: steps.h.
class SteppedProgram {
 public:
  /// `options`  but for input and output.
  explicit SteppedProgram(ChildOptions options);

  void tell();
  /// Fails the test if the program has ended instead.
  void await();
  void tell_and_await() {
    tell();
    await();
  }
  /// Waits for the end: whether its status is 0. What it said is in output().
  bool succeeds() { return child_->wait() == 0; }
  void tell_and_expect_success() {
    tell();
    EXPECT_TRUE(succeeds()) << output();
  }
  /// The output of the program so far, on both streams.
  std::string output() const { return read_file(folder_ / "output"); }
  Child& child() { return *child_; }

 private:
  UniqueFd channel_;
  TemporaryFolder folder_;
  std::unique_ptr<Child> child_;
};

}  // namespace gpumem::test
