#include "tests/support/stepped_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gpumem::test {

SteppedProgram::SteppedProgram(ChildOptions options) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  channel_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  const std::string file = folder_ / "output";
  const UniqueFd output(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  options.input = theirs.get();
  options.output = output.get();
  child_ = std::make_unique<Child>(options);
}

void SteppedProgram::tell() {
  const char byte = 1;
  EXPECT_EQ(::send(channel_.get(), &byte, 1, MSG_NOSIGNAL), 1) << "the program has ended: " << output();
}

void SteppedProgram::await() {
  char byte = 0;
  EXPECT_EQ(::read(channel_.get(), &byte, 1), 1) << "the program ended instead: " << output();
}

}  // namespace gpumem::test
