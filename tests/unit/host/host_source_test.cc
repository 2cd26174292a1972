#include "daemon/host/driver/host_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

namespace gpumem::host {
namespace {

constexpr Bytes kSize = mebibytes(2);
constexpr LeaseId kLease{7};

/// An extent of the host store that was lent, and what its client does with the file.
class HostSourceTest : public testing::Test {
 protected:
  HostSourceTest() { extent_.push_back(*source_.create({ExtentId{1}, kSize})); }

  int file() const { return extent_.front().descriptor.get(); }
  char* map(int protection) {
    void* const at = ::mmap(nullptr, kSize.count, protection, MAP_SHARED, file(), 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<char*>(at);
  }
  static ExtentSource::Proof proof() { return core::Job::Step::Proof{kLease, kSize, true}; }
  bool give_back() { return source_.destroy(std::move(extent_), proof()); }
  bool try_again() { return source_.destroy({}, proof()); }

  HostSource source_;
  std::vector<HeldExtent> extent_;
};

TEST_F(HostSourceTest, MemoryThatNobodyMapsForWritingIsProvedFree) {
  char* const at = map(PROT_READ | PROT_WRITE);
  std::memset(at, 1, kSize.count);
  ::munmap(at, kSize.count);
  EXPECT_TRUE(give_back());
}

TEST_F(HostSourceTest, MemoryIsNotProvedBeforeItsLastWriterIsGone) {
  char* const at = map(PROT_READ | PROT_WRITE);
  EXPECT_FALSE(give_back());
  EXPECT_FALSE(try_again());
  ::munmap(at, kSize.count);
  EXPECT_TRUE(try_again());
}

TEST_F(HostSourceTest, AReaderThatStaysIsEndedByTheKernelWhenItReads) {
  ASSERT_EQ(::pwrite(file(), "secret", 6, 0), 6);
  const std::string path = "/proc/self/fd/" + std::to_string(file());
  const UniqueFd only_read(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const void* const at = ::mmap(nullptr, kSize.count, PROT_READ, MAP_SHARED, only_read.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  EXPECT_TRUE(give_back());
  const pid_t reader = ::fork();
  if (reader == 0) {
    ::signal(SIGBUS, SIG_DFL);
    ::_exit(*static_cast<const volatile char*>(at) == 's' ? 1 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(reader, &status, 0), reader);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
}

TEST_F(HostSourceTest, ADescriptorThatAClientKeepsReadsNothingOfIt) {
  const UniqueFd kept(::dup(file()));
  ASSERT_EQ(::pwrite(kept.get(), "secret", 6, 0), 6);
  EXPECT_TRUE(give_back());
  char found[6] = {};
  EXPECT_EQ(::pread(kept.get(), found, sizeof(found), 0), 0);
  EXPECT_LT(::pwrite(kept.get(), "again", 5, 0), 0);
}

TEST_F(HostSourceTest, SealsOfAClientKeepMemoryForNobody) {
  ASSERT_EQ(::fcntl(file(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  ASSERT_EQ(::pwrite(file(), "secret", 6, 0), 6);
  EXPECT_TRUE(give_back());
}

TEST_F(HostSourceTest, AFileThatCannotBeSealedIsNeverProved) {
  ASSERT_EQ(::fcntl(file(), F_ADD_SEALS, F_SEAL_SEAL), 0);
  EXPECT_FALSE(give_back());
  EXPECT_FALSE(try_again());
}

TEST_F(HostSourceTest, AClientCannotGrowItsFile) {
  EXPECT_NE(::ftruncate(file(), static_cast<off_t>(2 * kSize.count)), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(HostSourceTest, PagesThatNobodyHasTouchedAreNotFree) {
  HostSource with_more;
  const auto before = with_more.memory();
  ASSERT_TRUE(before);
  const Bytes many{before->free.count / 2 / kSize.count * kSize.count};
  std::vector<HeldExtent> made;
  made.push_back(*with_more.create({ExtentId{2}, many}));
  EXPECT_LT(with_more.memory()->free, before->free - Bytes{many.count / 2});
  EXPECT_TRUE(with_more.destroy(std::move(made), {}));
  EXPECT_GT(with_more.memory()->free, before->free - Bytes{many.count / 2});
}

}  // namespace
}  // namespace gpumem::host
