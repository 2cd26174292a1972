#include "tests/contract/fixture.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/eventually.h"

namespace gpumem::contract {
namespace {

void must(Result<void> result) {
  if (result) return;
  ADD_FAILURE() << result.error().message;
  std::fflush(nullptr);
  ::_exit(1);
}

// In a process of its own a failed step is the end of it.
template <class T>
T must(Result<T> result) {
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

void DriverTest::SetUp() {
  if (std::getenv("GPUMEM_DRIVER_DIR") == nullptr) {
    GTEST_SKIP() << "GPUMEM_DRIVER_DIR does not say which driver to test (empty: the system's)";
  }
  auto nvml = cuda::Nvml::open(driver_folder());
  ASSERT_TRUE(nvml) << nvml.error().message;
  nvml_ = std::move(*nvml);
  Process asks([](Channel& channel) {
    const UniqueFd facts(::memfd_create("facts", 0));
    const cuda::Device& first = device();
    EXPECT_EQ(::write(facts.get(), &first.uuid, sizeof first.uuid), static_cast<ssize_t>(sizeof first.uuid));
    EXPECT_EQ(::write(facts.get(), &first.granularity, sizeof unit_), static_cast<ssize_t>(sizeof unit_));
    channel.send(facts.get());
  });
  const UniqueFd facts = asks.channel().receive();
  ASSERT_EQ(::pread(facts.get(), &uuid_, sizeof uuid_, 0), static_cast<ssize_t>(sizeof uuid_));
  ASSERT_EQ(::pread(facts.get(), &unit_, sizeof unit_, sizeof uuid_), static_cast<ssize_t>(sizeof unit_));
  asks.join();
  before_ = nvml_->memory(uuid_)->used.count;
}

std::uint64_t DriverTest::used() const {
  auto memory = nvml_->memory(uuid_);
  EXPECT_TRUE(memory);
  return memory ? memory->used.count - before_ : 0;
}

void DriverTest::expect_used(std::uint64_t bytes) const {
  EXPECT_TRUE(test::eventually([&] { return used() == bytes; })) << used() << " instead of " << bytes;
}

const cuda::Driver& driver() { return *must(cuda::Driver::open(driver_folder())); }
const cuda::Device& device() { return driver().devices().front(); }
cuda::Allocation allocate(Bytes size) {
  return must(cuda::Allocation::create(driver(), device().ordinal, size));
}
cuda::Allocation import(const UniqueFd& descriptor, Bytes size) {
  return must(cuda::Allocation::import(driver(), descriptor.get(), size));
}
UniqueFd exported(const cuda::Allocation& allocation) { return must(allocation.export_descriptor()); }

Mapped map(const cuda::Allocation& allocation) {
  Mapped mapped{must(cuda::Reservation::create(driver(), allocation.size(), device().granularity)), {}};
  std::vector<cuda::Allocation> one;
  one.push_back(import(exported(allocation), allocation.size()));
  mapped.mapping = must(cuda::Mapping::create(driver(), mapped.range.base(), one, device().ordinal));
  return mapped;
}

void fill(cuda::Address at, Bytes size, int value) {
  const auto context = must(cuda::CurrentContext::enter(driver(), device().ordinal));
  must(driver().check(driver().api().cuMemsetD8(at, static_cast<unsigned char>(value), size.count),
                      "cuMemsetD8"));
  must(driver().check(driver().api().cuCtxSynchronize(), "cuCtxSynchronize"));
}

bool holds(cuda::Address at, Bytes size, int value) {
  const auto context = must(cuda::CurrentContext::enter(driver(), device().ordinal));
  std::vector<unsigned char> copy(size.count);
  must(driver().check(driver().api().cuMemcpyDtoH(copy.data(), at, copy.size()), "cuMemcpyDtoH"));
  return std::ranges::all_of(copy, [&](unsigned char byte) { return byte == value; });
}

}  // namespace gpumem::contract
