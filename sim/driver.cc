#include "sim/driver.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "sim/locate.h"
#include "sim/visible_devices.h"

namespace gpumem::sim {
namespace {

/// Small allocations share 2 MiB blocks on the real driver; here they have pages of their own.
std::uint64_t rounded_allocation(std::uint64_t size) {
  const std::uint64_t unit = size < mebibytes(1).count ? kibibytes(64).count : kGranularity.count;
  return (size + unit - 1) / unit * unit;
}

}  // namespace

Driver& Driver::get() {
  static Driver* const driver = new Driver();
  return *driver;
}

CUresult Driver::init() {
  const std::lock_guard lock(mutex);
  if (state_ == State::kReady) return CUDA_SUCCESS;
  if (state_ == State::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = bring_up();
  if (result != CUDA_SUCCESS) return result;
  state_ = State::kReady;
  ::pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                   [] {
                     get().state_ = State::kForked;
                     get().handles->close_all_in_child();
                     get().mutex.unlock();
                   });
  return CUDA_SUCCESS;
}

CUresult Driver::bring_up() {
  static bool said = false;
  const auto machine = locate_machine();
  auto opened = machine ? Table::open(*machine) : Result<std::unique_ptr<Table>>(machine.error());
  if (!opened) {
    if (!std::exchange(said, true)) std::fprintf(stderr, "gpumem-sim: %s\n", opened.error().message.c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  auto visible = visible_devices(std::getenv("CUDA_VISIBLE_DEVICES"), **opened);
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  visible_ = std::move(visible);
  table = std::move(*opened);
  handles.emplace(*table);
  return CUDA_SUCCESS;
}

int Driver::ordinal(std::uint32_t index) const {
  for (int i = 0; i < device_count(); ++i) {
    if (device(i) == index) return i;
  }
  return -1;
}

CUresult Driver::current(Context** out) {
  const CUcontext handle = Contexts::top();
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Context* const context = contexts.find(handle);
  if (context == nullptr || context->memory == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = context;
  return CUDA_SUCCESS;
}

CUresult Driver::activate(Context& context) {
  const std::uint32_t index = device(context.ordinal);
  return create_extent({.device = index,
                        .kind = Kind::kContext,
                        .size = Contexts::cost(table->total(index)),
                        .handle_types = 0},
                       &context.memory);
}

void Driver::deactivate(Context& context) {
  for (const CUdeviceptr address : space.owned_by(context.id)) free(address);
  Extent& memory = *std::exchange(context.memory, nullptr);
  memory.handles = 0;
  handles->drop_if_unused(memory);
}

CUresult Driver::create_extent(const Table::Request& request, Extent** out) {
  auto created = table->create(request);
  if (!created) {
    return created.error().code == Code::kResourceExhausted ? CUDA_ERROR_OUT_OF_MEMORY
                                                            : CUDA_ERROR_OPERATING_SYSTEM;
  }
  Extent& extent = handles->add(created->slot, std::move(created->fd), request, false);
  extent.handles = 1;
  *out = &extent;
  return CUDA_SUCCESS;
}

CUresult Driver::allocate(Context& context, std::uint64_t size, CUdeviceptr* out) {
  const std::uint32_t index = device(context.ordinal);
  if (size > table->total(index)) return CUDA_ERROR_OUT_OF_MEMORY;  // also keeps the rounding from wrapping
  const std::uint64_t rounded = rounded_allocation(size);
  Extent* extent = nullptr;
  CUresult result =
      create_extent({.device = index, .kind = Kind::kMemory, .size = rounded, .handle_types = 0}, &extent);
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr address = 0;
  const std::uint64_t alignment = rounded < kGranularity.count ? kibibytes(64).count : kGranularity.count;
  result = space.reserve(rounded, alignment, context.id, &address);
  if (result == CUDA_SUCCESS) {
    result = space.map(address, rounded, *extent);
    if (result == CUDA_SUCCESS) {
      result = space.set_access(address, rounded, {{index, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}});
    }
    if (result != CUDA_SUCCESS) {
      unmap(address, rounded);
      space.unreserve(address, rounded, context.id);
    }
  }
  extent->handles = 0;  // held by its mapping alone
  handles->drop_if_unused(*extent);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

CUresult Driver::free(CUdeviceptr address) {
  const auto found = space.find(address);
  if (found.reservation == nullptr || found.reservation->owner == 0 || found.range_base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Reservation range = *found.reservation;
  unmap(address, range.size);
  return space.unreserve(address, range.size, range.owner);
}

CUresult Driver::unmap(CUdeviceptr address, std::uint64_t size) {
  std::vector<Extent*> released;
  const CUresult result = space.unmap(address, size, released);
  for (Extent* extent : released) handles->drop_if_unused(*extent);
  return result;
}

}  // namespace gpumem::sim
