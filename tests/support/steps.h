#pragma once
#include <unistd.h>

#include <cstdlib>

namespace gpumem::test {

/// In a program that a SteppedProgram is: tells the test that something is done.
inline void tell_test() {
  const char byte = 1;
  if (::write(STDIN_FILENO, &byte, 1) != 1) std::_Exit(3);  // the test has failed and gone
}
/// Waits until the test tells the program to go on.
inline void await_test() {
  char byte = 0;
  if (::read(STDIN_FILENO, &byte, 1) != 1) std::_Exit(3);
}
inline void tell_and_await_test() {
  tell_test();
  await_test();
}

}  // namespace gpumem::test
