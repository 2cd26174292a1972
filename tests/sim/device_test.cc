// What devices say of themselves, and calls that only answer.
#include <cuda.h>
#include <nvml.h>

#include <cstring>

#include "tests/sim/sim_fixture.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // old programs make old calls

// Declared by cudaProfiler.h, which not every set of headers holds.
extern "C" {
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
}

namespace gpumem::sim::test {
namespace {

class DeviceFacts : public SimTest {
 protected:
  DeviceFacts() : SimTest("1x64MiB,1x32MiB") {}

  static int attribute(CUdevice_attribute which, CUdevice device = 0) {
    int value = -1;
    EXPECT_CU(cuDeviceGetAttribute(&value, which, device));
    return value;
  }
  static void enter() {
    CUcontext context{};
    ASSERT_CU(cuInit(0));
    ASSERT_CU(cuDevicePrimaryCtxRetain(&context, 0));
    ASSERT_CU(cuCtxSetCurrent(context));
  }
};

TEST_IN_PROCESS(DeviceFacts, PciPlaceIsTheSameInBothLibraries) {
  ASSERT_CU(cuInit(0));
  for (unsigned i = 0; i < 2; ++i) {
    char id[13]{};
    CUdevice device = -1;
    nvmlDevice_t by_id{};
    nvmlPciInfo_t pci{};
    const int ordinal = static_cast<int>(i);
    ASSERT_CU(cuDeviceGetPCIBusId(id, sizeof id, ordinal));
    EXPECT_CU(cuDeviceGetByPCIBusId(&device, id));
    EXPECT_EQ(device, ordinal);
    ASSERT_EQ(nvmlDeviceGetHandleByPciBusId_v2(id, &by_id), NVML_SUCCESS);
    unsigned index = 99;
    EXPECT_EQ(nvmlDeviceGetIndex(by_id, &index), NVML_SUCCESS);
    EXPECT_EQ(index, i);
    ASSERT_EQ(nvmlDeviceGetPciInfo_v3(by_id, &pci), NVML_SUCCESS);
    EXPECT_STREQ(pci.busIdLegacy, id);
    EXPECT_EQ(std::string("0000") + id, pci.busId);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal), static_cast<int>(pci.bus));
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, ordinal), 0);
  }
}

TEST_IN_PROCESS(DeviceFacts, PciPlacesAreReadInTheirShorterFormsAndOthersAreRefused) {
  ASSERT_CU(cuInit(0));
  CUdevice device = -1;
  for (const char* const form : {"0000:02:00.0", "0:2:0", "02:00.0", "00000000:02:00.0"}) {
    EXPECT_CU(cuDeviceGetByPCIBusId(&device, form)) << form;
    EXPECT_EQ(device, 1) << form;
  }
  for (const char* const wrong : {"", "02", "0000:03:00.0", "0001:02:00.0", "0000:02:00.1", "x:02:00.0"}) {
    EXPECT_EQ(cuDeviceGetByPCIBusId(&device, wrong), CUDA_ERROR_INVALID_DEVICE) << wrong;
  }
  char small[12];
  EXPECT_EQ(cuDeviceGetPCIBusId(small, sizeof small, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_PROCESS(DeviceFacts, OlderCallsTellTheAttributes) {
  ASSERT_CU(cuInit(0));
  CUdevprop properties{};
  int major = 0, minor = -1;
  size_t elements = 0;
  EXPECT_CU(cuDeviceGetProperties(&properties, 0));
  EXPECT_EQ(properties.maxThreadsDim[2], attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z));
  EXPECT_EQ(properties.clockRate, attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
  EXPECT_CU(cuDeviceComputeCapability(&major, &minor, 0));
  EXPECT_EQ(major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  CUuuid first{}, second{};
  EXPECT_CU(cuDeviceGetUuid(&first, 0));
  EXPECT_CU(cuDeviceGetUuid(&second, 1));
  EXPECT_NE(std::memcmp(first.bytes, second.bytes, sizeof first.bytes), 0);
  EXPECT_CU(cuDeviceGetTexture1DLinearMaxWidth(&elements, CU_AD_FORMAT_FLOAT, 4, 0));
  EXPECT_GT(elements, 0U);
  EXPECT_EQ(cuDeviceGetTexture1DLinearMaxWidth(&elements, CU_AD_FORMAT_FLOAT, 3, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_PROCESS(DeviceFacts, PairsOfDevicesReachEachOther) {
  ASSERT_CU(cuInit(0));
  int value = -1;
  EXPECT_CU(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
            CUDA_ERROR_INVALID_DEVICE);
  unsigned nodes = 0;
  char luid[8];
  EXPECT_EQ(cuDeviceGetLuid(luid, &nodes, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CU(cuDeviceGetExecAffinitySupport(&value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  EXPECT_EQ(value, 0);
}

TEST_IN_PROCESS(DeviceFacts, CallsAboutWhatIsNotThereOnlyAnswer) {
  EXPECT_EQ(cuProfilerStart(), CUDA_ERROR_NOT_INITIALIZED);
  enter();
  EXPECT_CU(cuProfilerStart());
  EXPECT_CU(cuProfilerStop());
  EXPECT_CU(cuCtxResetPersistingL2Cache());
  EXPECT_CU(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                       CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  CUexecAffinityParam affinity{};
  EXPECT_EQ(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT),
            CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  CUsharedconfig config{};
  EXPECT_CU(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  EXPECT_CU(cuCtxGetSharedMemConfig(&config));
  EXPECT_EQ(config, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
}

TEST_IN_PROCESS(DeviceFacts, ContextGoesWithTheLastOneThatDetaches) {
  ASSERT_CU(cuInit(0));
  CUcontext made{}, attached{};
#if CUDA_VERSION >= 13000
  ASSERT_CU(cuCtxCreate(&made, nullptr, 0, 0));
#else
  ASSERT_CU(cuCtxCreate(&made, 0, 0));
#endif
  const std::uint64_t cost = used();
  EXPECT_CU(cuCtxAttach(&attached, 0));
  EXPECT_EQ(attached, made);
  EXPECT_CU(cuCtxDetach(made));
  EXPECT_EQ(used(), cost);
  EXPECT_CU(cuCtxDetach(made));
  EXPECT_EQ(used(), 0U);
}

}  // namespace
}  // namespace gpumem::sim::test
