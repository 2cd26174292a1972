#include "cuda/driver.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdio>

#include "base/mutex.h"
#include "cuda/library.h"
#include "cuda/memory.h"

// Two levels, so that cuda.h's versioning macros expand before the name becomes text.
#define GPUMEM_TEXT_OF(name) #name
#define GPUMEM_SYMBOL(name) GPUMEM_TEXT_OF(name)

namespace gpumem::cuda {
namespace {

Result<Api> bind_api(const Library& library) {
  Api api;
#define GPUMEM_CUDA_BIND(name) \
  if (auto bound = library.bind(api.name, GPUMEM_SYMBOL(name)); !bound) return bound.error();
  GPUMEM_CUDA_CALLS(GPUMEM_CUDA_BIND)
#undef GPUMEM_CUDA_BIND
  (void)library.bind(api.cuStreamGetId, "cuStreamGetId");  // these stay null in an older driver
  (void)library.bind(api.cuCtxGetId, "cuCtxGetId");
  return api;
}

Code code_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE: return Code::kInvalidArgument;
    case CUDA_ERROR_OUT_OF_MEMORY: return Code::kResourceExhausted;
    case CUDA_ERROR_NO_DEVICE: return Code::kNotFound;
    case CUDA_ERROR_NOT_PERMITTED: return Code::kPermissionDenied;
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_NOT_SUPPORTED: return Code::kFailedPrecondition;
    default: return Code::kInternal;
  }
}

std::atomic<std::uint64_t> forks{0};
const int kForksHeard =
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

/// The driver of one process.
struct OpenDriver {
  enum class State { kClosed, kLoading, kOpen, kUnusable };

  explicit OpenDriver(std::uint64_t of) : generation(of) {}
  /// A forked child's. Of `parent`, only what its threads had done wholly is read.
  OpenDriver(std::uint64_t of, const OpenDriver& parent) : generation(of), state(parent.state.load()) {
    if (state == State::kOpen) {
      driver = parent.driver;
      folder = parent.folder;
    } else if (state != State::kClosed) {
      state = State::kUnusable;
    }
  }

  const std::uint64_t generation;
  Mutex mutex;  ///< held while the driver is loaded
  std::atomic<State> state{State::kClosed};
  // Written under the mutex, before the state is kOpen. Constant afterwards.
  std::filesystem::path folder;
  const Driver* driver = nullptr;
};

// A forked child has one of its own: its parent's mutex may be locked by a thread that loads the driver. None
// is ever destroyed: threads may still use the driver while the process exits.
OpenDriver& open_driver() {
  static std::atomic<OpenDriver*> current{nullptr};
  const std::uint64_t generation = forks.load(std::memory_order_relaxed);
  OpenDriver* known = current.load(std::memory_order_acquire);
  while (known == nullptr || known->generation != generation) {
    auto made = known == nullptr ? std::make_unique<OpenDriver>(generation)
                                 : std::make_unique<OpenDriver>(generation, *known);
    if (current.compare_exchange_weak(known, made.get(), std::memory_order_acq_rel)) return *made.release();
  }
  return *known;
}

Error is_unusable() {
  return {Code::kFailedPrecondition,
          "this process was forked while another thread of its parent started the NVIDIA driver, and cannot "
          "use it; begin it by exec"};
}

}  // namespace

const Device& host_device() {
  static const Device host = [] {
    Device device;
    device.ordinal = kHostOrdinal;
    device.name = "host memory";
    device.granularity = mebibytes(2);
    return device;
  }();
  return host;
}

Result<const Driver*> Driver::open(const std::filesystem::path& folder) {
  using State = OpenDriver::State;
  OpenDriver& open = open_driver();
  const MutexLock lock(open.mutex);
  if (open.state == State::kUnusable) return is_unusable();
  if (open.state != State::kOpen) {
    open.state = State::kLoading;
    auto loaded = load(folder);
    if (loaded) {
      open.driver = loaded->release();
      open.folder = folder;
    }
    open.state = loaded ? State::kOpen : State::kClosed;
    if (!loaded) return loaded.error();
  } else if (open.folder != folder) {
    return Error{Code::kFailedPrecondition, "this process already uses the driver of '" +
                                                open.folder.string() + "' and cannot use that of '" +
                                                folder.string() + "' as well"};
  }
  return open.driver;
}

Result<const Driver*> Driver::current() {
  const OpenDriver& open = open_driver();
  if (open.state != OpenDriver::State::kOpen)
    return Error{Code::kFailedPrecondition, "this process has not opened the driver"};
  return open.driver;
}

Result<std::unique_ptr<Driver>> Driver::load(const std::filesystem::path& folder) {
  auto library = Library::open(folder, "libcuda.so.1");
  if (!library)
    return library.error().in(
        "the NVIDIA driver was not found (is it installed, and visible in this container?)");
  auto api = bind_api(*library);
  if (!api) return api.error();
  auto driver = std::make_unique<Driver>();
  driver->api_ = *api;
  if (auto started = driver->check(driver->api_.cuInit(0), "cuInit"); !started)
    return started.error().in("the NVIDIA driver does not start");
  if (auto found = driver->find_devices(); !found) return found.error();
  return driver;
}

Result<void> Driver::find_devices() {
  int count = 0;
  if (auto counted = check(api_.cuDeviceGetCount(&count), "cuDeviceGetCount"); !counted)
    return counted.error();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int shareable = 0;
    const auto asked = api_.cuDeviceGetAttribute(
        &shareable, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal);
    if (auto known = check(asked, "cuDeviceGetAttribute"); !known) return known.error();
    if (shareable == 0) continue;
    auto device = describe(ordinal);
    if (!device) return device.error();
    devices_.push_back(std::move(*device));
  }
  if (devices_.empty()) {
    return Error{Code::kNotFound,
                 "no GPU that can share memory between processes is visible (nvidia-smi -L; "
                 "CUDA_VISIBLE_DEVICES)"};
  }
  return {};
}

// A driver that does not know the question is too old; one that refuses such properties has no use for them.
bool Driver::has_direct_access(int ordinal) const {
  int offered = 0;
  std::size_t granularity = 0;
  const CUmemAllocationProp properties =
      allocation_properties(ordinal, HandleTypes::kDescriptor, DirectAccess::kYes);
  return api_.cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                   ordinal) == CUDA_SUCCESS &&
         offered != 0 &&
         api_.cuMemGetAllocationGranularity(&granularity, &properties,
                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS;
}

std::string Driver::pci_address(int ordinal) const {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    return check(api_.cuDeviceGetAttribute(&value, which, ordinal), "cuDeviceGetAttribute") ? value : 0;
  };
  char text[32] = {};
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  return text;
}

Result<Device> Driver::describe(int ordinal) const {
  Device device;
  device.ordinal = ordinal;
  CUuuid uuid{};
  std::array<char, 256> name{};
  std::size_t total = 0;
  std::size_t granularity = 0;
  device.has_direct_access = has_direct_access(ordinal);
  const CUmemAllocationProp properties = allocation_properties(
      ordinal, HandleTypes::kDescriptor, device.has_direct_access ? DirectAccess::kYes : DirectAccess::kNo);
  if (auto ok = check(api_.cuDeviceGetUuid(&uuid, ordinal), "cuDeviceGetUuid"); !ok) return ok.error();
  if (auto ok =
          check(api_.cuDeviceGetName(name.data(), static_cast<int>(name.size()), ordinal), "cuDeviceGetName");
      !ok) {
    return ok.error();
  }
  if (auto ok = check(api_.cuDeviceTotalMem(&total, ordinal), "cuDeviceTotalMem"); !ok) return ok.error();
  if (auto ok = check(
          api_.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");
      !ok) {
    return ok.error();
  }
  for (std::size_t i = 0; i < device.uuid.bytes.size(); ++i) {
    device.uuid.bytes[i] = static_cast<std::uint8_t>(uuid.bytes[i]);
  }
  device.name = name.data();
  device.total = {total};
  device.granularity = {granularity};
  device.pci_address = pci_address(ordinal);
  return device;
}

Result<const Device*> Driver::find(const DeviceUuid& uuid) const {
  std::string visible;
  for (const Device& device : devices_) {
    if (device.uuid == uuid) return &device;
    visible += " " + to_string(device.uuid);
  }
  return Error{Code::kNotFound, "device " + to_string(uuid) + " is not visible to this process, which sees" +
                                    visible + " (CUDA_VISIBLE_DEVICES hides devices)"};
}

std::string Driver::version() const {
  int version = 0;
  if (api_.cuDriverGetVersion(&version) != CUDA_SUCCESS) return "unknown";
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Error Driver::error(CUresult result, const char* call) const {
  const char* name = nullptr;
  const char* words = nullptr;
  if (api_.cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "unknown error";
  if (api_.cuGetErrorString(result, &words) != CUDA_SUCCESS) words = "the driver does not say what it means";
  return {code_of(result), std::string(call) + ": " + name + " (" + words + ")"};
}

Result<void> Driver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return {};
  return error(result, call);
}

}  // namespace gpumem::cuda
