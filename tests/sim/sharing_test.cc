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

TEST_F(Sharing, TwoProcessesShareOneCapacity) {
  Process first([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    create(48 * kMiB);
    peer.signal();
    peer.await();
  });
  first.peer().await();
  in_process([] {
    ASSERT_CU(cuInit(0));
    const auto prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, 18 * kMiB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CU(cuMemCreate(&handle, 16 * kMiB, &prop, 0));
  });
  first.peer().signal();
  EXPECT_EQ(first.join(), 0);
  EXPECT_EQ(used(), 0U);
}

TEST_F(Sharing, KilledProcessGivesAllItsMemoryBack) {
  Process process([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    const auto handle = create(32 * kMiB);
    *bytes_at(mapped(handle, 32 * kMiB)) = 1;
    const UniqueFd fd = exported(handle);
    CUcontext context;
    ASSERT_CU(cuDevicePrimaryCtxRetain(&context, 0));
    peer.signal();
    peer.await();
  });
  process.peer().await();
  EXPECT_EQ(used(), 34 * kMiB);
  process.kill();
  EXPECT_EQ(used(), 0U);
}

TEST_F(Sharing, MemoryOfTheDeadIsFoundWhenItIsNeeded) {
  Process process([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    const UniqueFd fd = exported(create(64 * kMiB));
    peer.signal();
    peer.await();
  });
  process.peer().await();
  process.kill();
  in_process([] {
    ASSERT_CU(cuInit(0));
    create(64 * kMiB);
  });
}

TEST_F(Sharing, ExportedDescriptorAlonePinsMemory) {
  UniqueFd fd;
  {
    Process process([](Peer& peer) {
      ASSERT_CU(cuInit(0));
      const auto handle = create(kPage);
      *bytes_at(mapped(handle, kPage)) = 42;
      peer.send(exported(handle).get());
    });
    fd = process.peer().receive();
    EXPECT_EQ(process.join(), 0);
  }
  EXPECT_EQ(used(), kPage);
  in_process([&] {
    ASSERT_CU(cuInit(0));
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_CU(import(fd.get(), &handle));
    EXPECT_EQ(*bytes_at(mapped(handle, kPage)), 42);
  });
  EXPECT_EQ(used(), kPage);
  fd.reset();
  EXPECT_EQ(used(), 0U);
}

TEST_F(Sharing, DescriptorInFlightPinsMemory) {
  Process process([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    peer.send(exported(create(kPage)).get());
  });
  EXPECT_EQ(process.join(), 0);  // nobody has received yet
  EXPECT_EQ(used(), kPage);
  process.peer().receive().reset();
  EXPECT_EQ(used(), 0U);
}

TEST_F(Sharing, MappingAlonePinsMemory) {
  Process process([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    const auto handle = create(kPage);
    const CUdeviceptr address = mapped(handle, kPage);
    exported(handle).reset();
    EXPECT_CU(cuMemRelease(handle));
    peer.signal();
    peer.await();
    *bytes_at(address) = 7;
    EXPECT_CU(cuMemUnmap(address, kPage));
    peer.signal();
    peer.await();
  });
  process.peer().await();
  EXPECT_EQ(used(), kPage);
  process.peer().signal();
  process.peer().await();
  EXPECT_EQ(used(), 0U);
  process.peer().signal();
  EXPECT_EQ(process.join(), 0);
}

TEST_F(Sharing, ImporterOutlivesExporter) {
  Process exporter([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    const auto handle = create(kPage);
    bytes_at(mapped(handle, kPage))[kPage - 1] = 9;
    peer.send(exported(handle).get());
    peer.await();
  });
  Process importer([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    UniqueFd fd = peer.receive();
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_CU(import(fd.get(), &handle));
    const CUdeviceptr address = mapped(handle, kPage);
    fd.reset();
    EXPECT_CU(cuMemRelease(handle));
    peer.signal();
    peer.await();
    EXPECT_EQ(bytes_at(address)[kPage - 1], 9);
  });
  importer.peer().send(exporter.peer().receive().get());
  importer.peer().await();
  exporter.kill();
  EXPECT_EQ(used(), kPage);
  importer.peer().signal();
  EXPECT_EQ(importer.join(), 0);
  EXPECT_EQ(used(), 0U);
}

TEST_F(Sharing, ImportedHandleCannotBeExported) {
  Process exporter([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    peer.send(exported(create(kPage)).get());
    peer.await();
  });
  const UniqueFd fd = exporter.peer().receive();
  in_process([&] {
    ASSERT_CU(cuInit(0));
    CUmemGenericAllocationHandle handle = 0, again = 0;
    ASSERT_CU(import(fd.get(), &handle));
    int out = -1;
    EXPECT_EQ(cuMemExportToShareableHandle(&out, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_ERROR_INVALID_VALUE);
    CUmemAllocationProp prop{};
    EXPECT_CU(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    EXPECT_EQ(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
    EXPECT_CU(import(fd.get(), &again)) << "another by the same descriptor";
    EXPECT_NE(handle, again);
  });
  exporter.peer().signal();
  EXPECT_EQ(exporter.join(), 0);
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
  Process process([](Peer&) {
    std::signal(SIGSEGV, SIG_DFL);
    ASSERT_CU(cuInit(0));
    volatile unsigned char* const bytes =
        bytes_at(mapped(create(kPage), kPage, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_EQ(*bytes, 0);
    *bytes = 1;
  });
  const int status = process.join();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST_F(Sharing, ForkedChildIsNotInitialisedAndPinsNothing) {
  Process parent([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    const auto handle = create(kPage);
    mapped(handle, kPage);
    exported(handle).reset();
    if (::fork() == 0) {
      int count = 0;
      const bool refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuMemRelease(handle) != CUDA_SUCCESS;
      if (refused) peer.signal();
      peer.await();
      ::_exit(0);
    }
    ::pause();
  });
  parent.peer().await();
  EXPECT_EQ(used(), kPage);
  parent.kill();
  EXPECT_EQ(used(), 0U);  // the child still runs
  parent.peer().signal();
}

}  // namespace
}  // namespace gpumem::sim::test
