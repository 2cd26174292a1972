// Calls the functions as PyTorch's C++ does: CUDAPluggableAllocator keeps each function in a std::function
// (torch/csrc/cuda/CUDAPluggableAllocator.h of PyTorch 2.15.0).
#include <dlfcn.h>

#include <functional>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include "cuda/driver.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "tests/integration/c_abi/broker.h"
#include "tests/support/host_gate.h"

namespace gpumem::test {
namespace {

/// The driver's functions of streams, which the library itself does not need.
struct TorchsDriver {
  decltype(&::cuStreamCreate) create_stream = nullptr;
  decltype(&::cuStreamDestroy) destroy_stream = nullptr;
  decltype(&::cuStreamSynchronize) synchronize = nullptr;
  decltype(&::cuLaunchHostFunc) launch = nullptr;

  TorchsDriver() {
    const auto library = cuda::Library::open(broker().driver_folder(), "libcuda.so.1");
    EXPECT_TRUE(library->bind(create_stream, "cuStreamCreate"));
    EXPECT_TRUE(library->bind(destroy_stream, "cuStreamDestroy_v2"));
    EXPECT_TRUE(library->bind(synchronize, "cuStreamSynchronize"));
    EXPECT_TRUE(library->bind(launch, "cuLaunchHostFunc"));
  }
};

class CTorch : public testing::Test {
 protected:
  using Record = std::function<void(void*, CUstream)>;

  CTorch() {
    (void)broker();
    gpumem_allocator* allocator = nullptr;
    EXPECT_TRUE(ok(gpumem_default_allocator(0, &allocator)));
    allocator_ = allocator;
    driver_.emplace();
    auto entered = cuda::CurrentContext::enter(**cuda::Driver::current(), 0);
    EXPECT_TRUE(entered);
    context_.emplace(std::move(*entered));
    main_ = new_stream();
    side_ = new_stream();
  }
  ~CTorch() override {
    EXPECT_EQ(driver_->destroy_stream(main_), CUDA_SUCCESS);
    EXPECT_EQ(driver_->destroy_stream(side_), CUDA_SUCCESS);
    EXPECT_TRUE(ok(gpumem_allocator_trim(allocator_, GPUMEM_UNKNOWN_SIZE, nullptr)));
  }
  CUstream new_stream() const {
    CUstream made = nullptr;
    EXPECT_EQ(driver_->create_stream(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
  }

  gpumem_allocator* allocator_ = nullptr;
  std::optional<TorchsDriver> driver_;
  std::optional<cuda::CurrentContext> context_;
  CUstream main_ = nullptr;
  CUstream side_ = nullptr;
  const Record record_ = &gpumem_torch_record_stream;
};

constexpr std::size_t kTensor = std::size_t{8} << 20;

TEST_F(CTorch, TensorThatASideStreamUsesIsNotReusedBeforeThatStreamIsDone) {
  void* tensor = gpumem_torch_alloc(kTensor, 0, main_);
  HostGate gate;
  ASSERT_EQ(driver_->launch(side_, &HostGate::wait, gate.argument()), CUDA_SUCCESS);
  record_(tensor, side_);
  gpumem_torch_free(tensor, kTensor, 0, main_);
  void* other = gpumem_torch_alloc(kTensor, 0, main_);
  EXPECT_NE(other, tensor) << "the side stream still reads it";
  gate.open();
  EXPECT_EQ(driver_->synchronize(side_), CUDA_SUCCESS);
  gpumem_torch_free(other, kTensor, 0, main_);
  EXPECT_TRUE(ok(gpumem_allocator_trim(allocator_, GPUMEM_UNKNOWN_SIZE, nullptr)));
  gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
  EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator_, &statistics)));
  EXPECT_EQ(statistics.committed, 0U) << "nothing is held after the work";
}

TEST_F(CTorch, MemoryOfOthersIsNotRecorded) {
  int of_the_host = 0;
  record_(nullptr, side_);
  record_(&of_the_host, side_);
}

TEST_F(CTorch, StreamThatCannotBeRecordedIsRefusedAloud) {
  auto* tensor = static_cast<char*>(gpumem_torch_alloc(kTensor, 0, main_));
  try {
    record_(tensor + 512, side_);
    FAIL() << "no block begins there";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("the stream is not recorded: INVALID_ARGUMENT"),
              std::string::npos)
        << error.what();
  }
  gpumem_torch_free(tensor, kTensor, 0, main_);
}

/// The libraries of a version of PyTorch, loaded as long as this is there.
class LoadedTorch {
 public:
  explicit LoadedTorch(const std::vector<std::string>& libraries) {
    for (const std::string& library : libraries) {
      handles_.push_back(::dlopen((GPUMEM_FAKE_TORCH + ("/" + library)).c_str(), RTLD_NOW));
      EXPECT_NE(handles_.back(), nullptr) << ::dlerror();
    }
  }
  LoadedTorch(const LoadedTorch&) = delete;
  LoadedTorch& operator=(const LoadedTorch&) = delete;
  ~LoadedTorch() {
    for (void* handle : handles_) ::dlclose(handle);
  }

 private:
  std::vector<void*> handles_;
};

struct CTorchOfVersion : CTorch, testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(CTorchOfVersion, LackOfMemoryIsPyTorchsOwnException) {
  const LoadedTorch torch(GetParam());
  const std::function<void*(std::size_t, int, CUstream)> allocate = &gpumem_torch_alloc;
  try {
    (void)allocate(kPool.count + 1, 0, main_);
    FAIL() << "more than there is";
  } catch (const std::exception& error) {
    EXPECT_STREQ(typeid(error).name(), "N3c1016OutOfMemoryErrorE");
    const std::string words = error.what();
    EXPECT_EQ(words.find("CUDA out of memory. gpumem: no "), 0U) << words;
    EXPECT_NE(words.find("on device 0: RESOURCE_EXHAUSTED: "), std::string::npos) << words;
    EXPECT_NE(words.find("(gpumem)"), std::string::npos) << "its constructor was not called: " << words;
  }
}

TEST_P(CTorchOfVersion, OtherFailuresAreNoLackOfMemory) {
  const LoadedTorch torch(GetParam());
  EXPECT_THROW((void)gpumem_torch_alloc(1, 9, nullptr), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Versions, CTorchOfVersion,
                         testing::Values(std::vector<std::string>{"new/libc10.so"},
                                         std::vector<std::string>{"old/libc10.so", "old/libc10_cuda.so"}));

TEST_F(CTorch, PrivatePoolIsRefusedAloud) {
  using Pool = std::pair<unsigned long long, unsigned long long>;
  using Filter = std::function<bool(CUstream)>;
  // As torch/csrc/cuda/Module.cpp casts the address that Python gives it.
  const auto address = reinterpret_cast<std::uintptr_t>(&gpumem_torch_begin_allocate_to_pool);
  const auto begin = reinterpret_cast<void (*)(int, Pool, Filter)>(address);
  try {
    begin(3, {0, 1}, [](CUstream) { return true; });
    FAIL() << "the graph's memory would be used by others";
  } catch (const std::runtime_error& error) {
    const std::string words = error.what();
    EXPECT_NE(words.find("no private memory pool on device 3: FAILED_PRECONDITION: "), std::string::npos)
        << words;
  }
}

TEST_F(CTorch, EmptyingTheCacheGivesBackFreeMemory) {
  gpumem_torch_free(gpumem_torch_alloc(kTensor, 0, main_), kTensor, 0, main_);
  gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
  EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator_, &statistics)));
  EXPECT_GE(statistics.committed, kTensor);
  gpumem_torch_reset();
  EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator_, &statistics)));
  EXPECT_EQ(statistics.committed, 0U);
}

TEST_F(CTorch, PeaksAreCountedAnew) {
  void* tensor = gpumem_torch_alloc(kTensor, 0, main_);
  gpumem_torch_free(tensor, kTensor, 0, main_);
  gpumem_torch_reset();
  gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
  EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator_, &statistics)));
  EXPECT_GE(statistics.peak_in_use, kTensor);
  EXPECT_TRUE(ok(gpumem_allocator_reset_peaks(allocator_)));
  EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator_, &statistics)));
  EXPECT_EQ(statistics.peak_in_use, 0U);
  EXPECT_EQ(statistics.peak_committed, 0U);
}

}  // namespace
}  // namespace gpumem::test
