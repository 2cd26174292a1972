#include "tests/contract/driver/fixture.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/eventually.h"

void PrintTo(CUresult result, std::ostream* out) {
  const char* name = nullptr;
  const bool is_named = gpumem::contract::calls().cuGetErrorName(result, &name) == CUDA_SUCCESS;
  *out << (is_named ? name : "a result without a name") << " (" << static_cast<int>(result) << ")";
}

namespace gpumem::contract {
namespace {

void require(Result<void> result) {
  if (result) return;
  ADD_FAILURE() << result.error().message;
  std::fflush(nullptr);
  ::_exit(1);
}

// In a process of its own a failed step is the end of it.
template <class T>
T require(Result<T> result) {
  if (result) return std::move(*result);
  ADD_FAILURE() << result.error().message;
  std::fflush(nullptr);
  ::_exit(1);
}

}  // namespace

std::filesystem::path driver_folder() {
  const char* named = std::getenv("GPUMEM_DRIVER_DIR");
  return named != nullptr ? named : "";
}

UniqueFd temporary_file() {
  std::string name = std::filesystem::temp_directory_path() / "contract-XXXXXX";
  UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  EXPECT_TRUE(file.valid()) << name;
  ::unlink(name.c_str());
  return file;
}

namespace {

/// Whether a process sees what others use.
bool sees_others() {
  const char* const told = std::getenv("GPUMEM_CONTRACT_FIGURES");
  return told == nullptr || std::string(told) != "own";
}

struct Facts {
  cuda::DeviceUuid uuid, last_uuid;
  Bytes unit, total;
  int devices;
};

Facts ask_for_facts() {
  Process asks([](Channel& channel) {
    const std::vector<cuda::Device>& all = driver().devices();
    channel.tell_value(Facts{all.front().uuid, all.back().uuid, all.front().granularity, all.front().total,
                             static_cast<int>(all.size())});
  });
  const auto facts = asks.channel().hear_value<Facts>();
  asks.join();
  return facts;
}

}  // namespace

void DriverTest::SetUp() {
  if (std::getenv("GPUMEM_DRIVER_DIR") == nullptr) {
    GTEST_SKIP() << "GPUMEM_DRIVER_DIR does not say which driver to test (empty: the system's)";
  }
  auto nvml = cuda::Nvml::open(driver_folder());
  ASSERT_TRUE(nvml) << nvml.error().message;
  nvml_ = std::move(*nvml);
  static const Facts facts = ask_for_facts();  // once: starting a real driver takes its time
  ASSERT_GT(facts.devices, 0);
  uuid_ = facts.uuid;
  last_uuid_ = facts.last_uuid;
  unit_ = facts.unit;
  total_ = facts.total;
  devices_ = facts.devices;
  const bool may_be_real = total_ >= gibibytes(2);
  slack_ = may_be_real ? mebibytes(16) : Bytes{};
  block_ = may_be_real ? mebibytes(64) : unit_;
  before_ = nvml_->memory(uuid_)->used.count;
}

void DriverTest::without_nvml(const std::function<void()>& body) {
  nvml_.reset();
  body();
  auto again = cuda::Nvml::open(driver_folder());
  ASSERT_TRUE(again) << again.error().message;
  nvml_ = std::move(*again);
}

std::uint64_t DriverTest::used() const {
  auto memory = nvml_->memory(uuid_);
  EXPECT_TRUE(memory);
  return memory ? memory->used.count - before_ : 0;
}

bool DriverTest::is_used(std::uint64_t bytes) const {
  const auto off = static_cast<std::int64_t>(used() - bytes);
  return static_cast<std::uint64_t>(off < 0 ? -off : off) <= slack_.count;
}

void DriverTest::expect_used(std::uint64_t bytes) const {
  if (!sees_others()) return;
  EXPECT_TRUE(test::eventually([&] { return is_used(bytes); })) << used() << " instead of " << bytes;
}

void DriverTest::expect_used_at_least(std::uint64_t bytes) const {
  if (!sees_others()) return;
  EXPECT_GE(used() + slack_.count, bytes);
}

void must(CUresult result, const char* file, int line) {
  if (result == CUDA_SUCCESS) return;
  ADD_FAILURE_AT(file, line) << driver().error(result, "call").message;
  std::fflush(nullptr);
  ::_exit(1);
}

const cuda::Driver& driver() { return *require(cuda::Driver::open(driver_folder())); }
const cuda::Device& device() { return driver().devices().front(); }
cuda::Allocation allocate(Bytes size) {
  return require(cuda::Allocation::create(driver(), device().ordinal, size));
}
cuda::Allocation import(const UniqueFd& descriptor, Bytes size) {
  return require(cuda::Allocation::import(driver(), descriptor.get(), size));
}
UniqueFd exported(const cuda::Allocation& allocation) { return require(allocation.export_descriptor()); }

cuda::Reservation reserve(Bytes size) {
  return require(cuda::Reservation::create(driver(), size, device().granularity));
}

cuda::CurrentContext context(int ordinal) {
  return require(cuda::CurrentContext::enter(driver(), ordinal >= 0 ? ordinal : device().ordinal));
}

CUmemAccessDesc access_of(int ordinal, CUmemAccess_flags flags) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = flags;
  return access;
}

CUresult set_access(cuda::Address at, std::uint64_t size) {
  const CUmemAccessDesc access = access_of(device().ordinal, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return calls().cuMemSetAccess(at, size, &access, 1);
}

CUcontext current() {
  CUcontext context = nullptr;
  must(calls().cuCtxGetCurrent(&context));
  return context;
}

Mapped map(const cuda::Allocation& allocation) {
  Mapped mapped{reserve(allocation.size()), {}};
  mapped.mapping = require(
      cuda::Mapping::create(driver(), mapped.range.base(), std::span(&allocation, 1), device().ordinal));
  return mapped;
}

void fill(cuda::Address at, Bytes size, int value) {
  const cuda::CurrentContext current = context();
  require(driver().check(driver().api().cuMemsetD8(at, static_cast<unsigned char>(value), size.count),
                         "cuMemsetD8"));
  require(driver().check(driver().api().cuCtxSynchronize(), "cuCtxSynchronize"));
}

bool holds(cuda::Address at, Bytes size, int value) {
  const cuda::CurrentContext current = context();
  std::vector<unsigned char> copy(size.count);
  require(driver().check(driver().api().cuMemcpyDtoH(copy.data(), at, copy.size()), "cuMemcpyDtoH"));
  return std::ranges::all_of(copy, [&](unsigned char byte) { return byte == value; });
}

}  // namespace gpumem::contract
