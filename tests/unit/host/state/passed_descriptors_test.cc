// Descriptors that a service manager passes, and those that a broker passes to its successor in this process.
#include "daemon/host/state/passed_descriptors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace gpumem::host {
namespace {

// Descriptors are passed from number 3 on, which only a process of its own has free.
[[noreturn]] void take_what_is_passed() {
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  ::setenv("LISTEN_FDS", "3", 1);
  ::setenv("LISTEN_FDNAMES", "api:lane:extent", 1);
  for (int number = 3; number < 6; ++number) {
    if (::dup2(STDERR_FILENO, number) != number) std::_Exit(1);
  }
  {
    auto passed = PassedDescriptors::of_process();
    const auto lane = passed.take("lane");
    if (!lane || lane->get() != 4 || passed.take("lane")) std::_Exit(2);
    const auto api = passed.take("api");
    if (!api || api->get() != 3 || passed.take("other")) std::_Exit(3);
    if ((::fcntl(3, F_GETFD) & FD_CLOEXEC) == 0) std::_Exit(4);
  }
  if (::fcntl(5, F_GETFD) >= 0) std::_Exit(5);  // nobody took it
  std::_Exit(0);
}

TEST(PassedDescriptors, AreTakenByTheirNames) {
  EXPECT_EXIT(take_what_is_passed(), testing::ExitedWithCode(0), "");
}

// The shell stands for the program that comes next: it says whether the descriptors are open.
TEST(PassedDescriptors, SurviveAnExecAndNoOthersDo) {
  const UniqueFd other(::open("/dev/null", O_RDONLY));
  NamedDescriptors descriptors;
  descriptors.push_back({"lease-7", UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC)), true});
  const std::string expected = std::to_string(descriptors.front().fd.get()) + " 1 lease-7";
  const std::string script = "test -e /proc/self/fd/" + std::to_string(descriptors.front().fd.get()) +
                             " && ! test -e /proc/self/fd/" + std::to_string(other.get()) +
                             " && test \"$(cat /proc/self/fd/${GPUMEMD_PASSED})\" = '" + expected + "'";
  const pid_t child = ::fork();
  if (child == 0) {
    auto passed = pass(descriptors);
    if (!passed) std::_Exit(90);
    char* const arguments[] = {const_cast<char*>("sh"), const_cast<char*>("-c"),
                               const_cast<char*>(script.c_str()), nullptr};
    char* const variables[] = {passed->second.data(), nullptr};
    ::execve("/bin/sh", arguments, variables);
    std::_Exit(91);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

[[noreturn]] void take_what_the_broker_before_has_passed() {
  NamedDescriptors descriptors;
  descriptors.push_back({"lease-7", UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC)), true});
  descriptors.push_back({"lease-8", UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC)), false});
  descriptors.push_back({"own-lane", UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC)), false});
  auto handed = pass(descriptors);
  if (!handed) std::_Exit(1);
  ::putenv(handed->second.data());
  static_cast<void>(handed->first.release());  // as an exec does
  for (NamedDescriptor& one : descriptors) static_cast<void>(one.fd.release());
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(),
           1);  // what the process was told at its very start
  ::setenv("LISTEN_FDS", "1", 1);
  auto passed = PassedDescriptors::of_process();
  const auto lane = passed.take(kOwnLaneDescriptor);
  if (!lane || (::fcntl(lane->get(), F_GETFD) & FD_CLOEXEC) == 0) std::_Exit(2);
  const auto leases = passed.take_leases();
  if (leases.size() != 2 || !leases.at(LeaseId{7}).stored || leases.at(LeaseId{8}).stored) std::_Exit(3);
  if (std::getenv("GPUMEMD_PASSED") != nullptr) std::_Exit(4);
  std::_Exit(0);
}

TEST(PassedDescriptors, OfTheBrokerBeforeAreTakenInPlaceOfTheServiceManagers) {
  EXPECT_EXIT(take_what_the_broker_before_has_passed(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpumem::host
