// Records the memory of contexts, and the calls that work without one.
#include "tests/contract/driver/processes/probe.h"
#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using ContextProbe = Probe;

void hold_context(Channel& channel) {
  const cuda::CurrentContext entered = context();
  must(calls().cuCtxSynchronize());
  channel.signal_and_await();
}

TEST_F(ContextProbe, WhichDriverAndDeviceAnswer) {
  note("driver", nvml().driver_version().value());
  note("visible devices", static_cast<std::uint64_t>(devices_));
  note("total", total_.count);
  note("granularity", unit_.count);
  ask("device", [] { return device().name + ", CUDA " + driver().version(); });
}

TEST_F(ContextProbe, CostInTheFirstAndInTheSecondProcess) {
  Process first(&hold_context);
  first.channel().await();
  const std::uint64_t one = used();
  note("first context, bytes", one);
  Process second(&hold_context);
  second.channel().await();
  note("second context, bytes", used() - one);
  second.signal_and_join();
  first.signal_and_join();
}

TEST_F(ContextProbe, CostOfInitialisationAlone) {
  Process process([](Channel& channel) {
    driver();
    channel.signal_and_await();
  });
  process.channel().await();
  note("cuInit, bytes", used());
  process.signal_and_join();
}

TEST_F(ContextProbe, MappingWithoutAContext) {
  ask("reserve, map, set access", [this] {
    const Calls& cu = calls();
    const cuda::Allocation one = allocate(unit_);
    const CUmemAccessDesc access = access_of(device().ordinal, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr at = 0;
    std::string said = name_of(cu.cuMemAddressReserve(&at, unit_.count, 0, 0, 0));
    said += ", " + name_of(cu.cuMemMap(at, unit_.count, 0, one.handle(), 0));
    said += ", " + name_of(cu.cuMemSetAccess(at, unit_.count, &access, 1));
    CUcontext current = nullptr;
    unsigned flags = 0;
    int active = -1;
    cu.cuCtxGetCurrent(&current);
    cu.cuDevicePrimaryCtxGetState(device().ordinal, &flags, &active);
    said += current == nullptr ? ", none is current" : ", one is current";
    return said + (active == 0 ? ", the primary one is not active" : ", the primary one is active");
  });
}

TEST_F(ContextProbe, CostOfMappingWithoutAContext) {
  Process process([this](Channel& channel) {
    const Mapped mapped = map(allocate(block_));
    channel.signal_and_await();
  });
  process.channel().await();
  note("bytes beyond the extent", used() - block_.count);
  process.signal_and_join();
}

TEST_F(ContextProbe, MemoryFiguresWithoutAContext) {
  ask("cuMemGetInfo", [] {
    driver();
    std::size_t free = 0, total = 0;
    return name_of(calls().cuMemGetInfo(&free, &total));
  });
}

TEST_F(ContextProbe, AllocationsOfNothing) {
  ask("cuMemAllocAsync of 0 bytes", [] {
    const cuda::CurrentContext entered = context();
    CUdeviceptr address = 0;
    return name_of(calls().cuMemAllocAsync(&address, 0, nullptr));
  });
  ask("cuMemHostAlloc of 0 bytes", [] {
    const cuda::CurrentContext entered = context();
    void* address = nullptr;
    return name_of(calls().cuMemHostAlloc(&address, 0, 0));
  });
  ask("cuMemFree of null", [] {
    const cuda::CurrentContext entered = context();
    return name_of(calls().cuMemFree(0));
  });
}

TEST_F(ContextProbe, RangeOfAMappedExtent) {
  ask("cuMemGetAddressRange inside the second of two mappings", [this] {
    const cuda::CurrentContext entered = context();
    const cuda::Reservation range = reserve({2 * unit_.count});
    std::vector<cuda::Allocation> two;
    two.push_back(allocate(unit_));
    two.push_back(allocate(unit_));
    auto mapping = cuda::Mapping::create(driver(), range.base(), two, device().ordinal);
    if (!mapping) return mapping.error().message;
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult asked = calls().cuMemGetAddressRange(&base, &size, range.base() + unit_.count + 1);
    if (asked != CUDA_SUCCESS) return name_of(asked);
    return "starts " + std::to_string(base - range.base()) + " bytes into the reservation, is " +
           std::to_string(size) + " long";
  });
}

TEST_F(ContextProbe, SmallAllocationsAreChargedInBlocks) {
  Process process([](Channel& channel) {
    const cuda::CurrentContext entered = context();
    channel.signal_and_await();
    const DeviceMemory one(1);
    channel.signal_and_await();
    const DeviceMemory two(1);
    channel.signal_and_await();
  });
  process.channel().await();
  const std::uint64_t before = used();
  process.channel().signal_and_await();
  const std::uint64_t first = used();
  note("the first byte of cuMemAlloc, bytes", first - before);
  process.channel().signal_and_await();
  note("the second, bytes", used() - first);
  process.signal_and_join();
}

}  // namespace
}  // namespace gpumem::contract
