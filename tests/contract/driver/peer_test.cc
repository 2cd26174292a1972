// Two devices: access to each other's memory, by context and by mapping.
#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

class Peers : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (devices_ < 2) GTEST_SKIP() << "one device only";
    Process asks([](Channel& channel) {
      int can = 0, back = 0;
      must((driver(), calls().cuDeviceCanAccessPeer(&can, first(), last())));
      must(calls().cuDeviceCanAccessPeer(&back, last(), first()));
      channel.tell_value(can != 0 && back != 0);
    });
    const bool can = asks.channel().hear_value<bool>();
    asks.join();
    if (!can) GTEST_SKIP() << "the devices cannot reach each other's memory";
  }

  static int first() { return driver().devices().front().ordinal; }
  static int last() { return driver().devices().back().ordinal; }
};

TEST_IN_PROCESS(Peers, AccessIsEnabledOnceAndDisabledOnce) {
  const cuda::CurrentContext other = context(last());
  const CUcontext peer = current();
  const cuda::CurrentContext own = context(first());
  EXPECT_OK(calls().cuCtxEnablePeerAccess(peer, 0));
  EXPECT_EQ(calls().cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_OK(calls().cuCtxDisablePeerAccess(peer));
  EXPECT_EQ(calls().cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(calls().cuCtxEnablePeerAccess(peer, 1), CUDA_ERROR_INVALID_VALUE) << "flags must be zero";
  EXPECT_REFUSED(calls().cuCtxEnablePeerAccess(current(), 0)) << "its own";
}

TEST_IN_PROCESS(Peers, CopyToEachOther) {
  const cuda::CurrentContext other = context(last());
  const CUcontext peer = current();
  const DeviceMemory there(4096);
  const cuda::CurrentContext own = context(first());
  const DeviceMemory here(4096);
  must(calls().cuMemsetD8(here, 0x6b, 4096));
  EXPECT_OK(calls().cuMemcpyPeer(there, peer, here, current(), 4096));
  must(calls().cuMemsetD8(here, 0, 4096));
  EXPECT_OK(calls().cuMemcpyPeer(here, current(), there, peer, 4096));
  EXPECT_TRUE(holds(here, {4096}, 0x6b));
}

TEST_IN_PROCESS(Peers, MappedExtentsAreReachedByWhomAccessIsSetFor) {
  const cuda::Device& owner = driver().devices().back();
  auto one = cuda::Allocation::create(driver(), owner.ordinal, owner.granularity);
  ASSERT_TRUE(one) << one.error().message;
  const cuda::Reservation range = reserve(owner.granularity);
  must(calls().cuMemMap(range.base(), owner.granularity.count, 0, one->handle(), 0));
  const CUmemAccessDesc both[] = {access_of(first(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                                  access_of(last(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
  must(calls().cuMemSetAccess(range.base(), owner.granularity.count, both, 2));
  fill(range.base(), owner.granularity, 0x21);  // by the first device, to which it does not belong
  const cuda::CurrentContext entered = context(last());
  std::vector<unsigned char> seen(owner.granularity.count);
  must(calls().cuMemcpyDtoH(seen.data(), range.base(), seen.size()));
  EXPECT_EQ(seen.front(), 0x21);
  EXPECT_EQ(seen.back(), 0x21);
  EXPECT_OK(calls().cuMemUnmap(range.base(), owner.granularity.count));
}

TEST_IN_PROCESS(Peers, NoDeviceIsItsOwn) {
  int can = 99;
  EXPECT_OK(calls().cuDeviceCanAccessPeer(&can, first(), first()));
  EXPECT_EQ(can, 0);
  EXPECT_EQ(calls().cuDeviceCanAccessPeer(&can, first(), 1000), CUDA_ERROR_INVALID_DEVICE);
}

}  // namespace
}  // namespace gpumem::contract
