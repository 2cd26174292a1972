// Sizes, offsets and parts that the documentation forbids or leaves open: what the driver really says.
#include <sys/resource.h>

#include <chrono>

#include "cuda/memory.h"
#include "tests/contract/driver/processes/probe.h"

namespace gpumem::contract {
namespace {

using MappingProbe = Probe;

CUresult create_raw(std::uint64_t size, CUmemGenericAllocationHandle* handle) {
  const CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
  return calls().cuMemCreate(handle, size, &properties, 0);
}
TEST_F(MappingProbe, GranularityLeastAndRecommended) {
  for (const auto types : {CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) {
    ask(types == CU_MEM_HANDLE_TYPE_NONE ? "private" : "shareable", [=] {
      CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
      properties.requestedHandleTypes = types;
      std::size_t least = 0, best = 0;
      must(calls().cuMemGetAllocationGranularity(&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
      must(calls().cuMemGetAllocationGranularity(&best, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
      return std::to_string(least) + " and " + std::to_string(best);
    });
  }
}

TEST_F(MappingProbe, SizesThatAreNotGranular) {
  for (const std::uint64_t size :
       {std::uint64_t{4096}, std::uint64_t{65536}, unit_.count / 2, unit_.count + 1}) {
    ask("create of " + std::to_string(size), [=] {
      CUmemGenericAllocationHandle handle = 0;
      return name_of(create_raw(size, &handle));
    });
  }
}

TEST_F(MappingProbe, MoreThanThereIs) {
  ask("create of the total and one unit", [this] {
    CUmemGenericAllocationHandle handle = 0;
    return name_of(create_raw(total_.rounded_down(unit_).count + unit_.count, &handle));
  });
  ask("create of 2^62", [] {
    CUmemGenericAllocationHandle handle = 0;
    return name_of(create_raw(std::uint64_t{1} << 62, &handle));
  });
}

TEST_F(MappingProbe, TheBeginningOfAnExtentOnly) {
  ask("map, set access, content, unmap", [this] {
    const cuda::Allocation two = allocate({2 * unit_.count});
    const cuda::Reservation range = reserve(unit_);
    const CUresult mapped = calls().cuMemMap(range.base(), unit_.count, 0, two.handle(), 0);
    if (mapped != CUDA_SUCCESS) return name_of(mapped);
    const CUresult allowed = set_access(range.base(), unit_.count);
    if (allowed == CUDA_SUCCESS) fill(range.base(), unit_, 0x44);
    const Mapped whole = map(two);
    const bool is_first = allowed == CUDA_SUCCESS && holds(whole.range.base(), unit_, 0x44);
    return "mapped, " + name_of(allowed) + (is_first ? ", the first unit, " : ", not the first unit, ") +
           name_of(calls().cuMemUnmap(range.base(), unit_.count));
  });
}

TEST_F(MappingProbe, FromAnOffset) {
  ask("map of the second half", [this] {
    const cuda::Allocation two = allocate({2 * unit_.count});
    const cuda::Reservation range = reserve(unit_);
    return name_of(calls().cuMemMap(range.base(), unit_.count, unit_.count, two.handle(), 0));
  });
}

TEST_F(MappingProbe, PartsOfAMapping) {
  ask("set access to half, unmap half", [this] {
    const Mapped mapped = map(allocate({2 * unit_.count}));
    const CUresult allowed = set_access(mapped.range.base(), unit_.count);
    return name_of(allowed) + ", " + name_of(calls().cuMemUnmap(mapped.range.base(), unit_.count));
  });
}

TEST_F(MappingProbe, UnmappedTwice) {
  ask("the second time", [this] {
    Mapped mapped = map(allocate(unit_));
    const cuda::Address at = mapped.range.base();
    must(calls().cuMemUnmap(at, unit_.count));
    return name_of(calls().cuMemUnmap(at, unit_.count));
  });
}

TEST_F(MappingProbe, DescriptorsOfOneProcess) {
  constexpr int kMost = 4096;
  ask("exports of one extent, at most 4096", [this] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const cuda::Allocation one = allocate(unit_);
    std::vector<UniqueFd> all;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && all.size() < kMost) {
      int descriptor = -1;
      result = calls().cuMemExportToShareableHandle(&descriptor, one.handle(),
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
      if (result == CUDA_SUCCESS) all.emplace_back(descriptor);
    }
    return std::to_string(all.size()) + " with a limit of " + std::to_string(limit.rlim_cur) +
           " open files, then " + name_of(result);
  });
}

TEST_F(MappingProbe, TimeToCreateRightAfterFreeingAndLater) {
  const Bytes size{std::min(gibibytes(1).count, budget().count)};
  Process process([&](Channel& channel) {
    using Clock = std::chrono::steady_clock;
    const auto create_for = [&] {
      CUmemGenericAllocationHandle handle = 0;
      const auto start = Clock::now();
      must(create_raw(size.count, &handle));
      const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
      must(calls().cuMemRelease(handle));
      return std::to_string(took.count());
    };
    std::string said = "first " + create_for();
    said += ", right after freeing " + create_for() + " and " + create_for();
    channel.signal();
    channel.await();  // until the management library calls the memory free
    channel.tell(said + ", later " + create_for());
  });
  process.channel().await();
  expect_used(0);
  process.channel().signal();
  note("microseconds for " + std::to_string(size.count) + " bytes", process.channel().hear());
  process.join();
}

}  // namespace
}  // namespace gpumem::contract
