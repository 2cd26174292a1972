// The session and allocator of the whole process, and the pairs of functions that frameworks load. One test
// may find them opened by another: they are never closed.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "cuda/driver.h"
#include "cuda/memory.h"
#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

class CProcess : public testing::Test {
 protected:
  CProcess() { (void)broker(); }
  gpumem_allocator* allocator() {
    gpumem_allocator* allocator = nullptr;
    EXPECT_TRUE(ok(gpumem_default_allocator(0, &allocator)));
    return allocator;
  }
  std::uint64_t in_use() {
    gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
    EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator(), &statistics)));
    return statistics.in_use;
  }
};

TEST_F(CProcess, HasOneSessionAndOneAllocatorForEachDevice) {
  std::vector<std::thread> threads;
  std::array<gpumem_allocator*, 16> seen{};
  for (auto& own : seen) threads.emplace_back([&own, this] { own = allocator(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto* own : seen) EXPECT_EQ(own, seen[0]);
  EXPECT_EQ(gpumem_allocator_ordinal(seen[0]), 0);
  EXPECT_EQ(std::string(gpumem_allocator_device(seen[0])), broker().device().uuid());
  EXPECT_EQ(broker().sessions().size(), 1U);
  gpumem_allocator* none = nullptr;
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_default_allocator(1, &none), "device 1"));
  EXPECT_EQ(none, nullptr);
}

TEST_F(CProcess, ItsOwnAreNotClosedNorConfiguredLate) {
  gpumem_session* session = nullptr;
  EXPECT_TRUE(ok(gpumem_default_session(&session)));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_session_close(session), "process"));
  EXPECT_TRUE(
      fails(GPUMEM_FAILED_PRECONDITION, gpumem_allocator_close(allocator()), "gpumem_allocator_trim"));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_allocator_destroy(allocator()), "process"));
  EXPECT_TRUE(ok(gpumem_session_ping(session)));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_configure_default(nullptr, nullptr), "open already"));
  gpumem_allocator_options options = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  options.device = "GPU-00000000-0000-0000-0000-000000000001";
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_configure_default(nullptr, &options), "device"));
}

TEST_F(CProcess, PyTorchsPairAllocatesAndFrees) {
  void* block = gpumem_torch_alloc(3 << 20, 0, nullptr);
  ASSERT_NE(block, nullptr);
  *static_cast<volatile char*>(block) = 1;
  EXPECT_EQ(in_use(), 3U << 20);
  gpumem_torch_free(block, 3 << 20, 0, nullptr);
  EXPECT_EQ(in_use(), 0U);
  EXPECT_EQ(gpumem_torch_alloc(0, 0, nullptr), nullptr);
  gpumem_torch_free(nullptr, 0, 0, nullptr);
}

TEST_F(CProcess, PyTorchIsToldWhyByAnException) {
  try {
    (void)gpumem_torch_alloc(kPool.count + 1, 0, nullptr);
    FAIL() << "more than there is";
  } catch (const std::runtime_error& error) {
    const std::string words = error.what();
    EXPECT_NE(words.find("on device 0: RESOURCE_EXHAUSTED: "), std::string::npos) << words;
  }
  EXPECT_THROW((void)gpumem_torch_alloc(1, 9, nullptr), std::runtime_error);
}

TEST_F(CProcess, PyTorchsWrongFreesAreSaidOnce) {
  int of_the_host = 0;
  gpumem_torch_free(gpumem_torch_alloc(4096, 0, nullptr), 4096, 0, nullptr);
  testing::internal::CaptureStderr();
  gpumem_torch_free(&of_the_host, 4, 0, nullptr);
  gpumem_torch_free(&of_the_host, 4, 0, nullptr);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("gpumem_torch_free: INVALID_ARGUMENT"), std::string::npos) << said;
}

struct CuPy : CProcess {
  CuPy() { legacy.allocator = allocator(); }
  /// Has so much free memory in the allocator, in one block at least.
  void have_free(std::uint64_t bytes) {
    gpumem_address address = 0;
    EXPECT_TRUE(ok(gpumem_allocate(allocator(), bytes, nullptr, &address)));
    EXPECT_TRUE(ok(gpumem_deallocate(allocator(), address, bytes, nullptr)));
  }

  int references = 0;
  gpumem_cupy_stream legacy{.struct_size = sizeof legacy,
                            .allocator = nullptr,
                            .stream = nullptr,
                            .owner = &references,
                            .retain = [](void* owner) { ++*static_cast<int*>(owner); },
                            .release = [](void* owner) { --*static_cast<int*>(owner); }};
};

TEST_F(CuPy, GetsWhatIsFreeAtOnceAndEachBlockHoldsAReference) {
  have_free(3 << 20);
  void* block = gpumem_cupy_malloc(&legacy, 3 << 20, 0);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(in_use(), 3U << 20);
  EXPECT_EQ(references, 1);
  gpumem_cupy_free(&legacy, block, 0);
  EXPECT_EQ(in_use(), 0U);
  EXPECT_EQ(references, 0);
  void* of_a_new_slab = gpumem_cupy_malloc(&legacy, 4096, 0);
  EXPECT_NE(of_a_new_slab, nullptr);
  gpumem_cupy_free(&legacy, of_a_new_slab, 0);
  for (void* nothing : {gpumem_cupy_malloc(&legacy, 0, 0), gpumem_cupy_malloc(&legacy, 4096, 1),
                        gpumem_cupy_malloc(nullptr, 4096, 0)})
    EXPECT_EQ(nothing, nullptr);
  gpumem_cupy_free(&legacy, nullptr, 0);
  EXPECT_EQ(references, 0);
}

TEST_F(CuPy, NeverAsksTheBroker) {
  const auto asked = [&] {
    gpumem_statistics now = GPUMEM_STATISTICS_INIT;
    EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator(), &now)));
    return now.growths + now.refused;
  };
  EXPECT_TRUE(ok(gpumem_allocator_trim(allocator(), GPUMEM_UNKNOWN_SIZE, nullptr)));
  const auto before = asked();
  EXPECT_EQ(gpumem_cupy_malloc(&legacy, 4 << 20, 0), nullptr);
  EXPECT_EQ(gpumem_cupy_malloc(&legacy, kPool.count + 1, 0), nullptr);
  EXPECT_EQ(asked(), before);
}

TEST_F(CuPy, WrongFreesAreSaidOnce) {
  have_free(3 << 20);
  void* block = gpumem_cupy_malloc(&legacy, 3 << 20, 0);
  int of_the_host = 0;
  testing::internal::CaptureStderr();
  gpumem_cupy_free(&legacy, block, 0);
  gpumem_cupy_free(&legacy, block, 0);
  gpumem_cupy_free(&legacy, &of_the_host, 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("gpumem_cupy_free: INVALID_ARGUMENT"), std::string::npos) << said;
}

/// Sets the limit of this process's tenant, which has no name of its own, by `gpumem quota set`.
Outcome set_limit(const std::string& limit) {
  return run(broker().command({"quota", "set", "uid:" + std::to_string(::geteuid()), "--limit", limit}));
}

TEST_F(CProcess, PyTorchsPairFollowsAQuotaThatIsChangedUnderIt) {
  GPUMEM_NEEDS_ROOT();
  constexpr std::uint64_t kMuch = 64U << 20;
  EXPECT_TRUE(ok(gpumem_allocator_trim(allocator(), GPUMEM_UNKNOWN_SIZE, nullptr)));
  const Outcome lowered = set_limit("32MiB");
  ASSERT_EQ(lowered.status, 0) << lowered.output;
  EXPECT_THROW((void)gpumem_torch_alloc(kMuch, 0, nullptr), std::runtime_error);
  const Outcome raised = set_limit("128MiB");
  ASSERT_EQ(raised.status, 0) << raised.output;
  void* const block = gpumem_torch_alloc(kMuch, 0, nullptr);
  ASSERT_NE(block, nullptr) << "in the same allocator, whose limit is the tenant's as it is now";
  EXPECT_EQ(set_limit("32MiB").status, 0);
  *static_cast<volatile char*>(block) = 1;  // what it has, it keeps
  try {
    (void)gpumem_torch_alloc(kMuch, 0, nullptr);
    FAIL() << "more than the limit";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("limit"), std::string::npos) << error.what();
  }
  gpumem_torch_free(block, kMuch, 0, nullptr);
  EXPECT_EQ(set_limit("100%").status, 0);
  void* const again = gpumem_torch_alloc(kMuch, 0, nullptr);
  gpumem_torch_free(again, kMuch, 0, nullptr);
}

TEST_F(CProcess, ForkedChildIsToldThatItCannotUseTheDriverOfItsParent) {
  void* block = gpumem_torch_alloc(4096, 0, nullptr);
  EXPECT_TRUE(in_child([&] {
    gpumem_allocator* none = nullptr;
    const bool told = gpumem_default_allocator(0, &none) == GPUMEM_FAILED_PRECONDITION && none == nullptr;
    gpumem_torch_free(block, 4096, 0, nullptr);
    return told;
  }));
  gpumem_torch_free(block, 4096, 0, nullptr);
  EXPECT_EQ(in_use(), 0U);
}

}  // namespace
}  // namespace gpumem::test
