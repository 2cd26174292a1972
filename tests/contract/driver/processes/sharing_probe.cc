// Descriptors and handles where the documentation ends: without processes, twice over, on hidden devices.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "cuda/memory.h"
#include "tests/contract/driver/management.h"
#include "tests/contract/driver/processes/probe.h"

namespace gpumem::contract {
namespace {

using SharingProbe = Probe;

CUresult import_raw(int descriptor, CUmemGenericAllocationHandle* handle) {
  return calls().cuMemImportFromShareableHandle(
      handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}
std::string import_result(int descriptor) {
  driver();
  CUmemGenericAllocationHandle handle = 0;
  return name_of(import_raw(descriptor, &handle));
}
CUresult export_raw(int* descriptor, CUmemGenericAllocationHandle handle) {
  return calls().cuMemExportToShareableHandle(descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0);
}

/// The third figure of /proc/self/statm: resident pages of files and shared memory.
std::uint64_t shared_pages() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return shared;
}

// A filled extent of which only the returned descriptor is left.
UniqueFd orphan(Bytes size, int value) {
  Process process([=](Channel& channel) {
    const cuda::Allocation one = allocate(size);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), size, value);
    channel.send(exported(one).get());
  });
  UniqueFd descriptor = process.channel().receive();
  process.join();
  return descriptor;
}

TEST_F(SharingProbe, ADescriptorAloneKeepsTheMemory) {
  {
    const Management management;
    nvmlEnableState_t mode{};
    EXPECT_EQ(management.persistence(management.device(uuid_), &mode), NVML_SUCCESS);
    note("persistence mode", mode == NVML_FEATURE_ENABLED ? "on" : "off");
  }
  UniqueFd descriptor;
  without_nvml([&] { descriptor = orphan(block_, 0x2d); });
  note("bytes kept with no CUDA process and no NVML", used());
  ask("imported from the descriptor alone", [&] {
    CUmemGenericAllocationHandle handle = 0;
    driver();
    if (const CUresult result = import_raw(descriptor.get(), &handle); result != CUDA_SUCCESS)
      return name_of(result);
    const Mapped mapped = map(import(descriptor, block_));
    return std::string(holds(mapped.range.base(), block_, 0x2d) ? "content is there" : "content is lost");
  });
}

TEST_F(SharingProbe, AnImportedHandleIsExportedAgain) {
  const UniqueFd first = orphan(unit_, 0x31);
  Process again([&](Channel& channel) {
    const cuda::Allocation one = import(first, unit_);
    int descriptor = -1;
    const std::string said = name_of(export_raw(&descriptor, one.handle()));
    const UniqueFd second(descriptor);
    channel.send(second.get());
    channel.tell(said);
  });
  const UniqueFd second = again.channel().receive();
  note("export", again.channel().hear());
  again.join();
  if (!second.valid()) return;
  ask("a third process", [&] {
    const Mapped mapped = map(import(second, unit_));
    return std::string(holds(mapped.range.base(), unit_, 0x31) ? "sees the content"
                                                               : "does not see the content");
  });
}

TEST_F(SharingProbe, ImportFromAHiddenDevice) {
  const UniqueFd descriptor = orphan(unit_, 1);
  const std::string visible = devices_ > 1 ? to_string(last_uuid_) : std::string();
  ask(devices_ > 1 ? "import" : "import where no device is visible", [&] {
    ::setenv("CUDA_VISIBLE_DEVICES", visible.c_str(), 1);
    calls().cuInit(0);
    CUmemGenericAllocationHandle handle = 0;
    return name_of(import_raw(descriptor.get(), &handle));
  });
}

TEST_F(SharingProbe, ForeignDescriptors) {
  ask("-1", [] { return import_result(-1); });
  ask("closed", [] { return import_result(9999); });
  ask("/dev/null", [] { return import_result(::open("/dev/null", O_RDWR | O_CLOEXEC)); });
  ask("regular file", [] { return import_result(temporary_file().release()); });
  ask("memfd", [] { return import_result(::memfd_create("other", MFD_CLOEXEC)); });
  ask("socket", [] { return import_result(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
  ask("/dev/nvidiactl", [] { return import_result(::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC)); });
}

TEST_F(SharingProbe, HandlesAfterTheirRelease) {
  const auto released = [this] {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
    must(calls().cuMemCreate(&handle, unit_.count, &properties, 0));
    must(calls().cuMemRelease(handle));
    return handle;
  };
  ask("released twice", [&] { return name_of(calls().cuMemRelease(released())); });
  ask("exported", [&] {
    int descriptor = -1;
    return name_of(export_raw(&descriptor, released()));
  });
  ask("mapped", [&] {
    const cuda::Reservation range = reserve(unit_);
    return name_of(calls().cuMemMap(range.base(), unit_.count, 0, released(), 0));
  });
}

TEST_F(SharingProbe, HandlesThatNeverWere) {
  for (const CUmemGenericAllocationHandle handle : {0ULL, 1ULL, 0xdeadbeefULL, ~0ULL}) {
    ask("release of " + std::to_string(handle), [=] {
      driver();
      return name_of(calls().cuMemRelease(handle));
    });
  }
}

// Creates with `properties` and exports as a descriptor; what each step says.
std::string create_and_export(const CUmemAllocationProp& properties, std::uint64_t size) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = calls().cuMemCreate(&handle, size, &properties, 0);
  if (created != CUDA_SUCCESS) return name_of(created);
  int descriptor = -1;
  const CUresult sent = export_raw(&descriptor, handle);
  CUmemAllocationProp found{};
  calls().cuMemGetAllocationPropertiesFromHandle(&found, handle);
  calls().cuMemRelease(handle);
  return "created (RDMA flag " + std::to_string(found.allocFlags.gpuDirectRDMACapable) +
         "), export: " + name_of(sent);
}

int attribute(int number) {
  int value = -1;
  calls().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(number), device().ordinal);
  return value;
}

TEST_F(SharingProbe, FabricHandles) {
  ask("attribute, create", [this] {
    CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(cuda::kFabricHandleType);
    const int supported = attribute(cuda::kFabricAttribute);
    return std::to_string(supported) + ", " + create_and_export(properties, unit_.count);
  });
}

// The driver's behaviour that the broker's fabric handles rely on, on devices that have them.
TEST_F(SharingProbe, FabricHandlesOfExtents) {
  const auto create = [this] {
    return cuda::Allocation::create(driver(), device().ordinal, block_,
                                    cuda::HandleTypes::kDescriptorAndFabric);
  };
  std::string tried;
  Process check([](Channel& channel) {
    const auto checked = cuda::check_fabric(driver(), device());
    channel.tell(checked ? "works" : checked.error().message);
  });
  tried = check.channel().hear();
  check.join();
  note("created, exported and imported", tried);
  if (tried != "works") return;
  ask("exported by an importer of the descriptor", [&] {
    auto own = create();
    if (!own) return own.error().message;
    const cuda::Allocation imported = import(exported(*own), block_);
    const auto handle = imported.export_fabric();
    return handle ? std::string("works") : handle.error().message;
  });
  Process owner([&](Channel& channel) {
    auto own = create();
    if (own) channel.tell_value(own->export_fabric().value_or({}));
    own = cuda::Allocation();
    channel.await();
  });
  const auto handle = owner.channel().hear_value<cuda::FabricHandle>();
  ask("imported when its owner has released it", [&] {
    const auto imported = cuda::Allocation::import(driver(), handle, block_);
    return imported ? std::string("works") : imported.error().message;
  });
  note("bytes kept by a handle alone", used());
  owner.signal_and_join();
}

TEST_F(SharingProbe, HostMemoryAsAnExtent) {
  ask("attribute, create", [this] {
    const int supported = (driver(), attribute(cuda::kHostNodeExtentAttribute));
    return std::to_string(supported) + ", " +
           create_and_export(cuda::host_allocation_properties(0), unit_.count);
  });
  Process owner([this](Channel& channel) {
    const auto own = cuda::Allocation::create_on_host(driver(), 0, unit_);
    channel.send(own ? exported(*own).get() : STDIN_FILENO);
    channel.await();
  });
  const UniqueFd descriptor = owner.channel().receive();
  const auto map_for = [&](cuda::Access access, const std::function<std::string(char*)>& then) {
    auto imported = cuda::Allocation::import(driver(), descriptor.get(), unit_);
    if (!imported) return imported.error().message;
    std::vector<cuda::Allocation> extents;
    extents.push_back(std::move(*imported));
    const cuda::Reservation range = reserve(unit_);
    const auto mapped = cuda::Mapping::create(driver(), range.base(), extents, cuda::kHostOrdinal, access);
    return mapped ? then(reinterpret_cast<char*>(range.base())) : mapped.error().message;
  };
  ask("SHR of a process that imports, maps and touches it, without a context", [&] {
    return map_for(cuda::Access::kReadWrite, [&](char* at) {
      const auto before = shared_pages();
      std::memset(at, 1, unit_.count);
      return std::to_string(before) + " pages, then " + std::to_string(shared_pages());
    });
  });
  ask("written to where it is mapped for reading", [&] {
    return map_for(cuda::Access::kRead, [&](char* at) {
      *static_cast<volatile char*>(at) = 1;
      return std::string("works");
    });
  });
  owner.signal_and_join();
}

TEST_F(SharingProbe, DirectAccessByNetworkCards) {
  ask("attribute, create", [this] {
    CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
    properties.allocFlags.gpuDirectRDMACapable = 1;
    return std::to_string(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) + ", " +
           create_and_export(properties, unit_.count);
  });
  Process exporter([this](Channel& channel) { channel.send(exported(allocate(unit_)).get()); });
  const UniqueFd descriptor = exporter.channel().receive();
  exporter.join();
  ask("flag of what another process imports", [&] {
    CUmemAllocationProp found{};
    must(calls().cuMemGetAllocationPropertiesFromHandle(&found, import(descriptor, unit_).handle()));
    return std::to_string(found.allocFlags.gpuDirectRDMACapable);
  });
}

}  // namespace
}  // namespace gpumem::contract
