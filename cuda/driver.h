#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cuda/headers.h"
#include "cuda/uuid.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

// Every driver call that the project makes. cuda.h's own macros give each name its current version
// (cuMemGetInfo -> cuMemGetInfo_v2), here and at the call.
#define GPUMEM_CUDA_CALLS(CALL)           \
  CALL(cuInit)                            \
  CALL(cuDriverGetVersion)                \
  CALL(cuGetErrorName)                    \
  CALL(cuGetErrorString)                  \
  CALL(cuDeviceGetCount)                  \
  CALL(cuDeviceGet)                       \
  CALL(cuDeviceGetName)                   \
  CALL(cuDeviceGetUuid)                   \
  CALL(cuDeviceTotalMem)                  \
  CALL(cuDeviceGetAttribute)              \
  CALL(cuDeviceCanAccessPeer)             \
  CALL(cuDevicePrimaryCtxRetain)          \
  CALL(cuDevicePrimaryCtxRelease)         \
  CALL(cuDevicePrimaryCtxGetState)        \
  CALL(cuCtxPushCurrent)                  \
  CALL(cuCtxPopCurrent)                   \
  CALL(cuCtxGetCurrent)                   \
  CALL(cuCtxGetDevice)                    \
  CALL(cuCtxGetStreamPriorityRange)       \
  CALL(cuCtxSynchronize)                  \
  CALL(cuStreamGetCtx)                    \
  CALL(cuStreamIsCapturing)               \
  CALL(cuStreamWaitEvent)                 \
  CALL(cuThreadExchangeStreamCaptureMode) \
  CALL(cuEventCreate)                     \
  CALL(cuEventRecord)                     \
  CALL(cuEventQuery)                      \
  CALL(cuEventSynchronize)                \
  CALL(cuEventDestroy)                    \
  CALL(cuMemGetAllocationGranularity)     \
  CALL(cuMemCreate)                       \
  CALL(cuMemRelease)                      \
  CALL(cuMemExportToShareableHandle)      \
  CALL(cuMemImportFromShareableHandle)    \
  CALL(cuMemAddressReserve)               \
  CALL(cuMemAddressFree)                  \
  CALL(cuMemMap)                          \
  CALL(cuMemUnmap)                        \
  CALL(cuMemSetAccess)                    \
  CALL(cuMemGetInfo)                      \
  CALL(cuMemHostRegister)                 \
  CALL(cuMemHostUnregister)               \
  CALL(cuMemcpyHtoD)                      \
  CALL(cuMemcpyDtoH)                      \
  CALL(cuMemsetD8)

namespace gpumem::cuda {

/// The driver's functions, by the names of cuda.h.
struct Api {
#define GPUMEM_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  GPUMEM_CUDA_CALLS(GPUMEM_CUDA_MEMBER)
#undef GPUMEM_CUDA_MEMBER
  // Null before CUDA 12.0.
  CUresult (*cuStreamGetId)(CUstream, unsigned long long*) = nullptr;
  CUresult (*cuCtxGetId)(CUcontext, unsigned long long*) = nullptr;
};

struct Device {
  int ordinal = 0;  ///< in this process only
  DeviceUuid uuid;
  std::string name;
  Bytes total;
  Bytes granularity;               ///< sizes and addresses of extents are multiples of it
  bool has_direct_access = false;  ///< extents can be made for GPUDirect RDMA
  std::string pci_address{};       ///< as the kernel writes it: `0000:01:00.0`
};

/// Stands for the host, whose extents cuda::Allocation::create_on_host() makes. Its ordinal is kHostOrdinal.
const Device& host_device();

/// The CUDA driver as the project uses it: devices, and the raw calls behind the types of memory.h.
/// Lives until the process ends. Makes no context.
/// Threads  any.
class Driver {
 public:
  /// Loads libcuda.so.1 from `folder` (empty: the system's search path) and initialises it.
  /// Returns one driver to every caller of the process.
  /// Errors  kNotFound (no library, no device), kFailedPrecondition (too old, cannot start, another folder's
  ///         driver is already in this process, or the process was forked while a thread was in this call).
  /// Fork    a child is never held up. It has its parent's driver, if that was open.
  static Result<const Driver*> open(const std::filesystem::path& folder = {});

  /// The driver that this process has opened. Errors  kFailedPrecondition: none yet.
  static Result<const Driver*> current();

  /// The devices this process can see that can share memory, in the order of their ordinals.
  const std::vector<Device>& devices() const { return devices_; }
  /// Errors  kNotFound: not visible to this process; the message lists what is.
  Result<const Device*> find(const DeviceUuid& uuid) const;

  /// `13.0`.
  std::string version() const;
  const Api& api() const { return api_; }

  /// `call: NAME: description`; the code follows from the driver's.
  Error error(CUresult result, const char* call) const;
  /// Success, or the error of `call`.
  Result<void> check(CUresult result, const char* call) const;

 private:
  static Result<std::unique_ptr<Driver>> load(const std::filesystem::path& folder);
  Result<void> find_devices();
  std::string pci_address(int ordinal) const;
  Result<Device> describe(int ordinal) const;
  bool has_direct_access(int ordinal) const;

  Api api_;
  std::vector<Device> devices_;
};

}  // namespace gpumem::cuda
