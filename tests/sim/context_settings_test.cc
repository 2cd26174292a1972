// What contexts are set to and tell of themselves, and the driver's small calls about itself.
#include <cuda.h>

#include <cstring>
#include <string>

#include "tests/sim/work_support.h"

extern "C" CUresult cuProfilerInitialize(const char* config, const char* output, int mode);

namespace gpumem::sim::test {
namespace {

class ContextSettings : public SimTest {
 protected:
  ContextSettings() : SimTest("2x64MiB") {}

  static CUcontext current() {
    CUcontext context = nullptr;
    EXPECT_CU(cuCtxGetCurrent(&context));
    return context;
  }
  /// Makes a context of device 0 and enters it.
  static CUcontext created(unsigned flags = 0) {
    CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
    EXPECT_CU(cuCtxCreate(&context, nullptr, flags, 0));
#else
    EXPECT_CU(cuCtxCreate(&context, flags, 0));
#endif
    return context;
  }
  static unsigned flags_of_current() {
    unsigned flags = ~0U;
    EXPECT_CU(cuCtxGetFlags(&flags));
    return flags;
  }
  static std::size_t limit(CUlimit which) {
    std::size_t value = ~std::size_t{0};
    EXPECT_CU(cuCtxGetLimit(&value, which));
    return value;
  }
};

const auto kNoContext = reinterpret_cast<CUcontext>(0x1234);

TEST_IN_CONTEXT(ContextSettings, EveryContextIsOfTheSameInterface) {
  unsigned named = 0, of_current = 0;
  EXPECT_CU(cuCtxGetApiVersion(current(), &named));
  EXPECT_CU(cuCtxGetApiVersion(nullptr, &of_current));
  EXPECT_EQ(named, 3020U);
  EXPECT_EQ(of_current, named);
  EXPECT_EQ(cuCtxGetApiVersion(current(), nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxGetApiVersion(kNoContext, &named), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_IN_CONTEXT(ContextSettings, CacheConfigIsToldAsItWasSetInItsOwnContext) {
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_EQUAL;
  EXPECT_CU(cuCtxGetCacheConfig(&config));
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_NONE);
  for (const CUfunc_cache wanted :
       {CU_FUNC_CACHE_PREFER_SHARED, CU_FUNC_CACHE_PREFER_L1, CU_FUNC_CACHE_PREFER_EQUAL}) {
    EXPECT_CU(cuCtxSetCacheConfig(wanted));
    EXPECT_CU(cuCtxGetCacheConfig(&config));
    EXPECT_EQ(config, wanted);
  }
  EXPECT_EQ(cuCtxGetCacheConfig(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuCtxGetCacheConfig(&config));
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_EQUAL);
  created();
  EXPECT_CU(cuCtxGetCacheConfig(&config));
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_NONE);
}

TEST_IN_CONTEXT(ContextSettings, LimitsStartAsDocumentedAndAreToldAsTheyWereSet) {
  EXPECT_EQ(limit(CU_LIMIT_STACK_SIZE), 1024U);
  EXPECT_EQ(limit(CU_LIMIT_MALLOC_HEAP_SIZE), 8 * kMiB);
  EXPECT_EQ(limit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT), 2048U);
  EXPECT_CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  EXPECT_EQ(limit(CU_LIMIT_STACK_SIZE), 4096U);
  EXPECT_EQ(limit(CU_LIMIT_MALLOC_HEAP_SIZE), 8 * kMiB) << "each is set for itself";
  created();
  EXPECT_EQ(limit(CU_LIMIT_STACK_SIZE), 1024U) << "and in its own context";
}

TEST_IN_CONTEXT(ContextSettings, FlagsAreThoseThatTheContextWasMadeWith) {
  EXPECT_EQ(flags_of_current(), 0U);
  created(CU_CTX_SCHED_YIELD | CU_CTX_MAP_HOST);
  EXPECT_EQ(flags_of_current(), unsigned{CU_CTX_SCHED_YIELD} | CU_CTX_MAP_HOST);
  EXPECT_EQ(cuCtxGetFlags(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_PROCESS(ContextSettings, PrimaryContextHasTheFlagsThatItsDeviceWasGiven) {
  ASSERT_CU(cuInit(0));
  unsigned flags = 0;
  int is_active = -1;
  EXPECT_CU(cuDevicePrimaryCtxSetFlags(1, CU_CTX_SCHED_BLOCKING_SYNC));
  EXPECT_CU(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
  EXPECT_EQ(flags, unsigned{CU_CTX_SCHED_BLOCKING_SYNC});
  EXPECT_EQ(is_active, 0);
  enter_primary(1);
  EXPECT_EQ(flags_of_current(), unsigned{CU_CTX_SCHED_BLOCKING_SYNC});
  EXPECT_CU(cuDevicePrimaryCtxSetFlags(1, CU_CTX_SCHED_SPIN)) << "an active one is set too";
  EXPECT_EQ(flags_of_current(), unsigned{CU_CTX_SCHED_SPIN});
  EXPECT_CU(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
  EXPECT_EQ(flags, 0U) << "the other device's has its own";
  EXPECT_EQ(cuDevicePrimaryCtxSetFlags(2, 0), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDevicePrimaryCtxSetFlags(-1, 0), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDevicePrimaryCtxSetFlags(1, CU_CTX_FLAGS_MASK + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(flags_of_current(), unsigned{CU_CTX_SCHED_SPIN});
}

#if CUDA_VERSION >= 12000
TEST_IN_CONTEXT(ContextSettings, FlagsAreSetWhileTheContextLives) {
  EXPECT_CU(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
  EXPECT_EQ(flags_of_current(), unsigned{CU_CTX_SCHED_SPIN});
  EXPECT_EQ(cuCtxSetFlags(CU_CTX_FLAGS_MASK + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(flags_of_current(), unsigned{CU_CTX_SCHED_SPIN});
}

TEST_IN_CONTEXT(ContextSettings, IdsAreNeverTheSameTwice) {
  unsigned long long primary = 0, first = 0, second = 0, again = 0;
  EXPECT_CU(cuCtxGetId(current(), &primary));
  EXPECT_CU(cuCtxGetId(nullptr, &again));
  EXPECT_EQ(again, primary);
  const CUcontext context = created();
  EXPECT_CU(cuCtxGetId(context, &first));
  EXPECT_NE(first, primary);
  EXPECT_CU(cuCtxDestroy(context));
  EXPECT_EQ(cuCtxGetId(context, &again), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuCtxGetId(created(), &second));
  EXPECT_NE(second, first);
  EXPECT_NE(second, primary);
  EXPECT_EQ(cuCtxGetId(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}
#endif

TEST_IN_PROCESS(ContextSettings, WithoutAContextThereIsNothingToSetOrTell) {
  std::size_t value = 0;
  unsigned flags = 0;
  CUfunc_cache config{};
  EXPECT_EQ(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuDevicePrimaryCtxSetFlags(0, 0), CUDA_ERROR_NOT_INITIALIZED);
  ASSERT_CU(cuInit(0));
  EXPECT_EQ(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxGetFlags(&flags), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxGetCacheConfig(&config), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxGetApiVersion(nullptr, &flags), CUDA_ERROR_INVALID_CONTEXT);
#if CUDA_VERSION >= 12000
  unsigned long long id = 0;
  EXPECT_EQ(cuCtxSetFlags(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxGetId(nullptr, &id), CUDA_ERROR_INVALID_CONTEXT);
#endif
}

TEST_IN_PROCESS(ContextSettings, NoInternalTableIsGivenOut) {
  ASSERT_CU(cuInit(0));
  CUuuid id{};
  std::memset(id.bytes, 0x5a, sizeof id.bytes);
  const void* table = &id;
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(table, nullptr);
  EXPECT_EQ(cuGetExportTable(nullptr, &id), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(ContextSettings, ProfilerIsNeverInitialised) {
  EXPECT_EQ(cuProfilerInitialize("config", "output", 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuProfilerInitialize(nullptr, nullptr, -1), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_IN_PROCESS(ContextSettings, DeviceNameIsCutToItsRoom) {
  char name[64] = "", cut[8];
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, 0), CUDA_ERROR_NOT_INITIALIZED);
  ASSERT_CU(cuInit(0));
  EXPECT_CU(cuDeviceGetName(name, sizeof name, 1));
  EXPECT_STREQ(name, "gpumem simulated GPU");
  std::memset(cut, 'x', sizeof cut);
  EXPECT_CU(cuDeviceGetName(cut, sizeof cut - 1, 0));
  EXPECT_EQ(std::string(cut), std::string(name).substr(0, sizeof cut - 2));
  EXPECT_EQ(cut[sizeof cut - 1], 'x') << "nothing is written past the room";
  EXPECT_EQ(cuDeviceGetName(cut, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetName(nullptr, 8, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, -1), CUDA_ERROR_INVALID_DEVICE);
}

}  // namespace
}  // namespace gpumem::sim::test
