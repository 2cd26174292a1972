#include "daemon/host/system/short_slices.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <thread>

namespace gpumem::host {
namespace {

// The slice of the calling thread, in ns: `sched_runtime` of the kernel's `sched_attr`.
std::uint64_t slice_ns() {
  std::array<std::uint64_t, 6> attributes{};
  EXPECT_EQ(::syscall(SYS_sched_getattr, 0, attributes.data(), sizeof attributes, 0), 0);
  return attributes[3];
}

bool kernel_has_slices() {
  utsname name{};
  int major = 0, minor = 0;
  EXPECT_EQ(::uname(&name), 0);
  EXPECT_EQ(std::sscanf(name.release, "%d.%d", &major, &minor), 2);  // NOLINT(cert-err34-c)
  return major > 6 || (major == 6 && minor >= 12);
}

TEST(ShortSlices, AreTheCallingThreadsAndThoseOfThreadsItStartsAndItsNicenessStays) {
  std::thread([] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 3), 0);
    ask_for_short_slices();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())), 3);
    EXPECT_EQ(slice_ns(), kernel_has_slices() ? 100'000U : 0U);
    std::thread([mine = slice_ns()] { EXPECT_EQ(slice_ns(), mine); }).join();
  }).join();
  EXPECT_NE(slice_ns(), 100'000U);
}

}  // namespace
}  // namespace gpumem::host
