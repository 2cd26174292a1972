#pragma once

/// The arguments of cuLaunchKernel in old_driver.cc: in all registers for arguments, and on the stack.
struct PassedArguments {
  long integers[7];
  double reals[8];
  bool operator==(const PassedArguments&) const = default;
};
using OldLaunch = int(long, long, long, long, long, long, double, double, double, double, double, double,
                      double, double, long, PassedArguments*);
