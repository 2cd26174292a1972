// Input that must end in an error, never in a crash: descriptors of other things, null pointers, impossible
// sizes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda/memory.h"
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Refusal = DriverTest;

CUresult import_raw(int descriptor) {
  CUmemGenericAllocationHandle handle = 0;
  return calls().cuMemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

// Refused, and the driver still works afterwards.
void expect_not_imported(int descriptor, Bytes unit) {
  in_process([=] {
    driver();
    EXPECT_REFUSED(import_raw(descriptor));
    const UniqueFd good = exported(allocate(unit));
    import(good, unit);
  });
}

UniqueFd memory_file(std::string_view bytes) {
  UniqueFd file(::memfd_create("other", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return file;
}

TEST_F(Refusal, OfNoDescriptorAtAll) {
  expect_not_imported(-1, unit_);
  expect_not_imported(9999, unit_);
}

TEST_F(Refusal, OfAClosedDescriptor) {
  const int closed = UniqueFd(::memfd_create("closed", MFD_CLOEXEC)).get();
  expect_not_imported(closed, unit_);
}

TEST_F(Refusal, OfARegularFile) {
  const UniqueFd file = temporary_file();
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(unit_.count)), 0);
  expect_not_imported(file.get(), unit_);
}

TEST_F(Refusal, OfAMemoryFile) { expect_not_imported(memory_file(std::string(4096, 'x')).get(), unit_); }

TEST_F(Refusal, OfDevNull) {
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  expect_not_imported(nothing.get(), unit_);
}

TEST_F(Refusal, OfASocketAndOfAPipe) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd left(ends[0]), right(ends[1]);
  expect_not_imported(left.get(), unit_);
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  expect_not_imported(reading.get(), unit_);
}

TEST_F(Refusal, OfMemoryOnAHiddenDevice) {
  if (devices_ < 2) GTEST_SKIP() << "one device only";
  Process exporter([this](Channel& channel) { channel.send(exported(allocate(unit_)).get()); });
  const UniqueFd descriptor = exporter.channel().receive();
  exporter.join();
  in_process([&] {
    ::setenv("CUDA_VISIBLE_DEVICES", to_string(last_uuid_).c_str(), 1);
    driver();
    EXPECT_REFUSED(import_raw(descriptor.get()));
  });
}

TEST_IN_PROCESS(Refusal, OfNullPointers) {
  const Calls& cu = calls();
  const CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
  const cuda::Allocation one = allocate(unit_);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_REFUSED(cu.cuMemCreate(nullptr, unit_.count, &properties, 0));
  EXPECT_REFUSED(cu.cuMemCreate(&handle, unit_.count, nullptr, 0));
  EXPECT_REFUSED(cu.cuMemGetAllocationGranularity(nullptr, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_REFUSED(
      cu.cuMemExportToShareableHandle(nullptr, one.handle(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_REFUSED(cu.cuMemAddressReserve(nullptr, unit_.count, 0, 0, 0));
  EXPECT_REFUSED(cu.cuMemGetAllocationPropertiesFromHandle(nullptr, one.handle()));
  EXPECT_REFUSED(cu.cuDeviceGetCount(nullptr));
  EXPECT_REFUSED(cu.cuDriverGetVersion(nullptr));
  const Mapped mapped = map(one);
  EXPECT_REFUSED(cu.cuMemSetAccess(mapped.range.base(), unit_.count, nullptr, 1));
}

TEST_IN_PROCESS(Refusal, OfAddressesThatNobodyReserved) {
  const Calls& cu = calls();
  const cuda::Allocation one = allocate(unit_);
  const CUmemAccessDesc access = access_of(device().ordinal, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUdeviceptr nowhere = 64 * unit_.count;
  EXPECT_REFUSED(cu.cuMemMap(nowhere, unit_.count, 0, one.handle(), 0));
  EXPECT_REFUSED(cu.cuMemUnmap(nowhere, unit_.count));
  EXPECT_REFUSED(cu.cuMemSetAccess(nowhere, unit_.count, &access, 1));
  EXPECT_REFUSED(cu.cuMemAddressFree(nowhere, unit_.count));
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_REFUSED(cu.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(nowhere)));
}

TEST_IN_PROCESS(Refusal, OfImpossibleReservations) {
  const Calls& cu = calls();
  driver();
  CUdeviceptr at = 0;
  EXPECT_REFUSED(cu.cuMemAddressReserve(&at, 0, 0, 0, 0));
  EXPECT_REFUSED(cu.cuMemAddressReserve(&at, std::size_t{1} << 62, 0, 0, 0))
      << "larger than any address space";
  EXPECT_REFUSED(cu.cuMemAddressReserve(&at, unit_.count, 3 * unit_.count, 0, 0)) << "no power of two";
  EXPECT_REFUSED(cu.cuMemAddressReserve(&at, unit_.count, 0, 0, 1)) << "flags must be zero";
}

TEST_F(Refusal, OfFlagsThatMustBeZero) {
  in_process([this] {
    const Calls& cu = calls();
    const CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_REFUSED(cu.cuMemCreate(&handle, unit_.count, &properties, 1));
    const cuda::Allocation one = allocate(unit_);
    const cuda::Reservation range = reserve(unit_);
    EXPECT_REFUSED(cu.cuMemMap(range.base(), unit_.count, 0, one.handle(), 1));
    EXPECT_REFUSED(cu.cuInit(1));
  });
  expect_used(0);
}

TEST_IN_PROCESS(Refusal, OfWhatTheDriverDoesNotKnowAsLocationOrAccess) {
  const Calls& cu = calls();
  const Mapped mapped = map(allocate(unit_));
  CUmemAccessDesc access = access_of(1000, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_REFUSED(cu.cuMemSetAccess(mapped.range.base(), unit_.count, &access, 1)) << "no such device";
  access = access_of(device().ordinal, static_cast<CUmemAccess_flags>(99));
  EXPECT_REFUSED(cu.cuMemSetAccess(mapped.range.base(), unit_.count, &access, 1)) << "no such access";
}

TEST_IN_PROCESS(Refusal, OfExportingWhatWasNotMadeForIt) {
  CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(calls().cuMemCreate(&handle, unit_.count, &properties, 0));
  int descriptor = -1;
  EXPECT_REFUSED(
      calls().cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_OK(calls().cuMemRelease(handle));
}

}  // namespace
}  // namespace gpumem::contract
