#include "daemon/host/driver/host_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/log.h"
#include "daemon/host/driver/host_file.h"

namespace gpumem::host {
namespace {

constexpr Bytes kSize = mebibytes(2);
constexpr LeaseId kLease{7};

/// An extent of the host store that was lent, and what its client does with the file.
class HostSourceTest : public testing::Test {
 protected:
  explicit HostSourceTest(bool is_private = true) {
    extent_.push_back(*source_.create({ExtentId{1}, kSize}));
    EXPECT_EQ(seal_host_file(file(), is_private), !is_private);
  }

  int file() const { return extent_.front().descriptor.get(); }
  char* map(int protection) {
    void* const at = ::mmap(nullptr, kSize.count, protection, MAP_SHARED, file(), 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<char*>(at);
  }
  // Its holder keeps the descriptor.
  bool give_back() {
    std::vector<HeldExtent> returned;
    returned.push_back({extent_.front().extent, {}, {}});
    return source_.destroy(std::move(returned), core::Job::Step::Proof{kLease, kSize, true});
  }
  template <class Access>
  static bool is_bus_error(Access access) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGBUS, SIG_DFL);
      access();
      ::_exit(0);
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
  }

  HostSource source_;
  std::vector<HeldExtent> extent_;
};

TEST_F(HostSourceTest, ReturnedMemoryIsGoneForWhoeverStillMapsIt) {
  char* const at = map(PROT_READ | PROT_WRITE);
  std::memset(at, 1, kSize.count);
  EXPECT_TRUE(give_back());
  EXPECT_TRUE(is_bus_error([at] { ::_exit(*static_cast<const volatile char*>(at)); }));
  EXPECT_TRUE(is_bus_error([at] { *static_cast<volatile char*>(at) = 1; }));
}

TEST_F(HostSourceTest, ADescriptorThatAClientKeepsReadsAndWritesNothing) {
  const UniqueFd kept(::dup(file()));
  ASSERT_EQ(::pwrite(kept.get(), "secret", 6, 0), 6);
  EXPECT_TRUE(give_back());
  char found[6] = {};
  EXPECT_EQ(::pread(kept.get(), found, sizeof(found), 0), 0);
  EXPECT_LT(::pwrite(kept.get(), "again", 5, 0), 0);
  EXPECT_NE(::ftruncate(kept.get(), 4096), 0);
}

TEST_F(HostSourceTest, AClientCanSealNothing) {
  for (const int seal : {F_SEAL_SHRINK, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL}) {
    EXPECT_NE(::fcntl(file(), F_ADD_SEALS, seal), 0);
    EXPECT_EQ(errno, EPERM);
  }
  ASSERT_EQ(::pwrite(file(), "secret", 6, 0), 6);
  EXPECT_TRUE(give_back());
}

TEST_F(HostSourceTest, AClientCannotGrowItsFile) {
  EXPECT_NE(::ftruncate(file(), static_cast<off_t>(2 * kSize.count)), 0);
  EXPECT_EQ(errno, EPERM);
}

/// An extent that several processes may map.
struct SharedHostExtent : HostSourceTest {
  SharedHostExtent() : HostSourceTest(false) {}
};

TEST_F(SharedHostExtent, IsFreeOnceNobodyElseHasIt) {
  const UniqueFd systemds(::dup(file()));
  UniqueFd reader = open_again(file(), true), writer = open_again(file(), false);
  EXPECT_NE(::ftruncate(writer.get(), 0), 0) << "no client takes it from others";
  void* const at = ::mmap(nullptr, kSize.count, PROT_READ, MAP_SHARED, reader.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  std::memset(map(PROT_READ | PROT_WRITE), 1, kSize.count);
  EXPECT_FALSE(give_back());
  reader.reset();
  EXPECT_FALSE(give_back());
  writer.reset();
  EXPECT_FALSE(give_back()) << "a mapping counts";
  ASSERT_EQ(::munmap(at, kSize.count), 0);
  EXPECT_TRUE(give_back());
  struct stat info {};
  ASSERT_EQ(::fstat(systemds.get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0) << "a duplicate of the broker's descriptor holds no pages";
}

// The broker has no descriptor for the look.
TEST_F(SharedHostExtent, IsNotFreeAsLongAsNobodyCanTellAndTheLogSaysWhy) {
  const auto said = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(4);
  spdlog::default_logger()->sinks().push_back(said);
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{0, files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_FALSE(give_back());
  EXPECT_FALSE(give_back());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  spdlog::default_logger()->sinks().pop_back();
  EXPECT_TRUE(give_back());
  const auto lines = said->last_formatted();
  ASSERT_EQ(lines.size(), 1U) << "it says so once";
  EXPECT_NE(lines.front().find("raise the broker's limit of open files (LimitNOFILE=)"), std::string::npos)
      << lines.front();
}

TEST_F(HostSourceTest, PagesThatNobodyHasTouchedAreNotFree) {
  HostSource with_more;
  const auto before = with_more.memory();
  ASSERT_TRUE(before);
  const Bytes many{before->free.count / 2 / kSize.count * kSize.count};
  std::vector<HeldExtent> made;
  made.push_back(*with_more.create({ExtentId{2}, many}));
  EXPECT_LT(with_more.memory()->free, before->free - Bytes{many.count / 2});
  HostSource next;
  next.adopt(made.front().extent, made.front().descriptor.get());
  EXPECT_LT(next.memory()->free, before->free - Bytes{many.count / 2}) << "nor after a restart";
  EXPECT_TRUE(with_more.destroy(std::move(made), {}));
  EXPECT_GT(with_more.memory()->free, before->free - Bytes{many.count / 2});
}

}  // namespace
}  // namespace gpumem::host
