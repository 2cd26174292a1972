#include "tests/hostile/clients/as_user.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpumem::test {
namespace {

constexpr int kUnchanged = -1;

// The raw calls change this thread alone; libc's would change all.
void become(uid_t uid, gid_t gid) {
  EXPECT_EQ(::syscall(SYS_setresgid, kUnchanged, gid, kUnchanged), 0);
  EXPECT_EQ(::syscall(SYS_setresuid, kUnchanged, uid, kUnchanged), 0);
}

}  // namespace

AsUser::AsUser(uid_t uid, gid_t gid) { become(uid, gid); }

AsUser::~AsUser() {
  EXPECT_EQ(::syscall(SYS_setresuid, kUnchanged, 0, kUnchanged), 0);
  EXPECT_EQ(::syscall(SYS_setresgid, kUnchanged, 0, kUnchanged), 0);
}

}  // namespace gpumem::test
