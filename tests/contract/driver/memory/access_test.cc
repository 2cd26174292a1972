// Access: nothing without being set, no writes where only reading is allowed, nothing after the end.
#include <sys/wait.h>

#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Access = DriverTest;

// One extent, mapped, without access.
struct Bare {
  explicit Bare(Bytes unit) : size(unit), allocation(allocate(unit)), range(reserve(unit)) {
    must(calls().cuMemMap(range.base(), size.count, 0, allocation.handle(), 0));
  }
  void allow(CUmemAccess_flags flags) const {
    const CUmemAccessDesc access = access_of(device().ordinal, flags);
    must(calls().cuMemSetAccess(range.base(), size.count, &access, 1));
  }
  unsigned long long access() const {
    unsigned long long flags = 99;
    const CUmemLocation location = access_of(device().ordinal, CU_MEM_ACCESS_FLAGS_PROT_NONE).location;
    must(calls().cuMemGetAccess(&flags, &location, range.base()));
    return flags;
  }

  Bytes size;
  cuda::Allocation allocation;
  cuda::Reservation range;
};

CUresult write_to(cuda::Address at) {
  const cuda::CurrentContext current = context();
  const char bytes[64]{};
  const CUresult copied = calls().cuMemcpyHtoD(at, bytes, sizeof bytes);
  return copied != CUDA_SUCCESS ? copied : calls().cuCtxSynchronize();
}
CUresult read_from(cuda::Address at) {
  const cuda::CurrentContext current = context();
  char bytes[64]{};
  return calls().cuMemcpyDtoH(bytes, at, sizeof bytes);
}

// `forbidden` must not succeed. It may answer with an error or end its process, as a faulting device does;
// what it answers with is not promised, so it has a process to itself.
void expect_impossible(const std::function<CUresult()>& forbidden) {
  Process process([&](Channel& channel) {
    const CUresult result = forbidden();
    channel.tell_value(result);
    ::_exit(result == CUDA_SUCCESS ? 1 : 0);  // past destructors: the context may be broken
  });
  const int status = process.wait();
  EXPECT_TRUE(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << "it succeeded";
}

TEST_IN_PROCESS(Access, IsAskedForAsItWasSet) {
  const Bare bare(unit_);
  EXPECT_EQ(bare.access(), static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_NONE)) << "mapped, nothing more";
  bare.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(bare.access(), static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READ));
  bare.allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(bare.access(), static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_OK(calls().cuMemUnmap(bare.range.base(), unit_.count));
}

TEST_F(Access, IsNoneUntilItIsSet) {
  expect_impossible([this] { return write_to(Bare(unit_).range.base()); });
  expect_impossible([this] {
    const Bare bare(unit_);
    return read_from(bare.range.base());
  });
}

TEST_F(Access, ToReadAllowsNoWrites) {
  in_process([this] {
    const Bare bare(unit_);
    bare.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_OK(read_from(bare.range.base()));
    EXPECT_OK(calls().cuMemUnmap(bare.range.base(), unit_.count));
  });
  expect_impossible([this] {
    const Bare bare(unit_);
    bare.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
    return write_to(bare.range.base());
  });
}

TEST_F(Access, ToReadIsAProcessesOwnAffair) {
  Process writer([this](Channel& channel) {
    const Bare bare(unit_);
    bare.allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    channel.send(exported(bare.allocation).get());
    channel.await();
    fill(bare.range.base(), unit_, 0x11);
    channel.signal_and_await();
    EXPECT_OK(calls().cuMemUnmap(bare.range.base(), unit_.count));
  });
  const UniqueFd descriptor = writer.channel().receive();
  Process reader([&](Channel& channel) {
    const cuda::Allocation one = import(descriptor, unit_);
    const cuda::Reservation range = reserve(unit_);
    must(calls().cuMemMap(range.base(), unit_.count, 0, one.handle(), 0));
    const CUmemAccessDesc access = access_of(device().ordinal, CU_MEM_ACCESS_FLAGS_PROT_READ);
    must(calls().cuMemSetAccess(range.base(), unit_.count, &access, 1));
    channel.signal_and_await();
    EXPECT_TRUE(holds(range.base(), unit_, 0x11)) << "the other still writes";
    EXPECT_OK(calls().cuMemUnmap(range.base(), unit_.count));
  });
  reader.channel().await();
  writer.channel().signal_and_await();
  reader.signal_and_join();
  writer.signal_and_join();
}

TEST_F(Access, EndsWithTheMapping) {
  expect_impossible([this] {
    Mapped mapped = map(allocate(unit_));
    must(write_to(mapped.range.base()));
    mapped.mapping = {};
    return write_to(mapped.range.base());
  });
}

TEST_F(Access, StartsAnewWithANewMapping) {
  expect_impossible([this] {
    const cuda::Allocation one = allocate(unit_);
    Mapped mapped = map(one);
    mapped.mapping = {};
    must(calls().cuMemMap(mapped.range.base(), unit_.count, 0, one.handle(), 0));
    return write_to(mapped.range.base());
  });
}

TEST_F(Access, OfFreedMemoryIsImpossible) {
  expect_impossible([this] {
    cuda::Address at = 0;
    at = map(allocate(unit_)).range.base();
    return write_to(at);
  });
}

}  // namespace
}  // namespace gpumem::contract
