// Fabric handles: only on machines that were made with them.
#include <cuda.h>

#include <array>
#include <cstring>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

constexpr auto kFabric = static_cast<CUmemAllocationHandleType>(8);  // CU_MEM_HANDLE_TYPE_FABRIC, 12.3
using Handle = std::array<unsigned char, 64>;

CUmemAllocationProp both() {
  CUmemAllocationProp prop = properties();
  prop.requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | kFabric);
  return prop;
}
CUmemGenericAllocationHandle created() {
  CUmemGenericAllocationHandle handle = 0;
  const auto prop = both();
  EXPECT_CU(cuMemCreate(&handle, kPage, &prop, 0));
  return handle;
}
CUresult import_fabric(Handle handle) {
  CUmemGenericAllocationHandle imported = 0;
  return cuMemImportFromShareableHandle(&imported, handle.data(), kFabric);
}

class FabricMachine : public SimTest {
 protected:
  FabricMachine() : SimTest("1x64MiB+fabric") {}
};

TEST_F(FabricMachine, HandlesAreCheckedNotBelieved) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    EXPECT_EQ(import_fabric({}), CUDA_ERROR_INVALID_VALUE);
    const auto memory = created();
    Handle handle{};
    ASSERT_CU(cuMemExportToShareableHandle(handle.data(), memory, kFabric, 0));
    for (std::size_t i = 0; i < 40; ++i) {
      Handle altered = handle;
      altered.at(i) ^= 0x40;
      EXPECT_EQ(import_fabric(altered), CUDA_ERROR_INVALID_VALUE) << "byte " << i;
    }
    EXPECT_CU(cuMemRelease(memory));
    EXPECT_EQ(import_fabric(handle), CUDA_ERROR_INVALID_VALUE) << "nothing is left of it";
    CUmemGenericAllocationHandle imported = 0;
    EXPECT_EQ(cuMemImportFromShareableHandle(&imported, nullptr, kFabric), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(FabricMachine, HostMemoryIsNotPassedOnSo) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    auto prop = both();
    prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
  });
}

}  // namespace
}  // namespace gpumem::sim::test
