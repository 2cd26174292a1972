// What crosses processes: capacity, descriptors, death.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

using Sharing = SimTest;

TEST_F(Sharing, MemoryOfTheDeadIsFoundWhenItIsNeeded) {
  Process process([](Channel& channel) {
    ASSERT_CU(cuInit(0));
    const UniqueFd fd = exported(create(64 * kMiB));
    channel.signal();
    channel.await();
  });
  process.channel().await();
  process.kill();
  in_process([] {
    ASSERT_CU(cuInit(0));
    create(64 * kMiB);
  });
}

TEST_F(Sharing, DescriptorsThatAreNoMemoryAreRefused) {
  in_process([this] {
    ASSERT_CU(cuInit(0));
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(import(-1, &handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(import(987, &handle), CUDA_ERROR_INVALID_VALUE);
    const std::string named_alike = folder_ / "extent-0-1";
    std::ofstream(named_alike) << "x";
    const UniqueFd file(::open(named_alike.c_str(), O_RDWR));
    EXPECT_EQ(import(file.get(), &handle), CUDA_ERROR_INVALID_VALUE);
    ::unlink(named_alike.c_str());
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    EXPECT_EQ(import(ends[0], &handle), CUDA_ERROR_INVALID_VALUE);
    UniqueFd fd = exported(create(kPage));
    const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
    const UniqueFd opened_by_name(::open(path.c_str(), O_RDWR));
    ASSERT_TRUE(opened_by_name.valid());
    EXPECT_EQ(import(opened_by_name.get(), &handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(import(fd.get(), &handle));
  });
}

TEST_F(Sharing, WriteThroughReadOnlyMappingEndsTheProcess) {
  Process process([](Channel&) {
    std::signal(SIGSEGV, SIG_DFL);
    ASSERT_CU(cuInit(0));
    volatile unsigned char* const bytes =
        bytes_at(mapped(create(kPage), kPage, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_EQ(*bytes, 0);
    *bytes = 1;
  });
  const int status = process.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST_F(Sharing, ForkedChildIsNotInitialisedAndPinsNothing) {
  Process parent([](Channel& channel) {
    ASSERT_CU(cuInit(0));
    const auto handle = create(kPage);
    mapped(handle, kPage);
    exported(handle).reset();
    if (::fork() == 0) {
      int count = 0;
      const bool refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuMemRelease(handle) != CUDA_SUCCESS;
      if (refused) channel.signal();
      channel.await();
      ::_exit(0);
    }
    ::pause();
  });
  parent.channel().await();
  EXPECT_EQ(used(), kPage);
  parent.kill();
  EXPECT_EQ(used(), 0U);  // the child still runs
  parent.channel().signal();
}

}  // namespace
}  // namespace gpumem::sim::test
