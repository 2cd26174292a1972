#include "sim/driver/driver.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "sim/driver/devices.h"
#include "sim/exports/gate.h"
#include "sim/exports/per_thread_default.h"
#include "sim/machine/machine.h"

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
  Gate::attach(*machine);
  visible_ = std::move(visible);
  fabric = machine->fabric;
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
  return context->error;
}

CUresult Driver::stream(CUstream named, StreamRef* out) {
  Context* context = nullptr;
  if (const CUresult result = current(&context); result != CUDA_SUCCESS) return result;
  if (named == nullptr) named = PerThreadDefault::is_on() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (named == CU_STREAM_LEGACY) {
    *out = streams.legacy_default(context->id);
  } else if (named == CU_STREAM_PER_THREAD) {
    *out = streams.thread_default(context->id);
  } else {
    *out = streams.find(number(named));
  }
  return *out == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Driver::queue(CUstream named, StreamRef* out) {
  const CUresult result = stream(named, out);
  return result == CUDA_SUCCESS ? captures.check_use(**out) : result;
}

CUresult Driver::queue_uncaptured(CUstream named, StreamRef* out) {
  const CUresult result = stream(named, out);
  return result == CUDA_SUCCESS ? captures.check_no_capture(**out) : result;
}

bool Driver::is_created(const Stream& stream) {
  return options_of(stream).kind != StreamKind::kLegacyDefault && !options_of(stream).is_thread_default;
}

void Driver::fail(std::uint64_t id, CUresult error) {
  const std::lock_guard lock(mutex);
  Context* const context = contexts.find(handle<CUcontext>(id));
  if (context != nullptr && context->error == CUDA_SUCCESS) context->error = error;
}

CUresult Driver::after_wait(std::uint64_t id) {
  const Context* const context = contexts.find(handle<CUcontext>(id));
  return context == nullptr ? CUDA_SUCCESS : context->error;
}

bool Driver::is_host_memory(std::uint64_t address, std::uint64_t size) const {
  return host.find(address, size) != nullptr;
}

void Call::run_unlocked(const Work& wait) {
  lock_.unlock();
  wait();
  lock_.lock();
}

void Call::wait(const std::vector<Ticket>& tickets) {
  run_unlocked([&] {
    for (const Ticket& ticket : tickets) ticket.wait();
  });
}

CUresult Driver::activate(Context& context) {
  context.number = contexts.next_number();
  const std::uint32_t index = device(context.ordinal);
  return create_extent({.device = index,
                        .kind = Kind::kContext,
                        .size = Contexts::cost(table->total(index)),
                        .handle_types = 0},
                       &context.memory);
}

void Driver::deactivate(Context& context) {
  for (const CUdeviceptr address : space.owned_by(context.id))
    end_range(address, *space.find(address).reservation);
  host.free_all_of(context.id);
  arrays.destroy_all_of(context.id);
  modules.end_all_of(context.id);
  captures.forget_all_of(context.id);
  streams.destroy_all_of(context.id);
  events.destroy_all_of(context.id);
  context.error = CUDA_SUCCESS;
  Extent& memory = *std::exchange(context.memory, nullptr);
  memory.handles = 0;
  handles->drop_if_unused(memory);
}

CUresult Driver::create_extent(const Table::Request& request, Extent** out) {
  auto created = table->create(request);
  const bool is_full = !created && created.error().code == Code::kResourceExhausted;
  if (is_full && pools.release_unused(request.device)) created = table->create(request);
  if (!created) {
    return created.error().code == Code::kResourceExhausted ? CUDA_ERROR_OUT_OF_MEMORY
                                                            : CUDA_ERROR_OPERATING_SYSTEM;
  }
  Extent& extent = handles->add(created->slot, std::move(created->fd), request, false);
  extent.handles = 1;
  *out = &extent;
  return CUDA_SUCCESS;
}

CUresult Driver::allocate(Context& context, std::uint64_t size, CUdeviceptr* out, Use use) {
  const std::uint32_t index = device(context.ordinal);
  if (size > table->total(index)) return CUDA_ERROR_OUT_OF_MEMORY;  // also keeps the rounding from wrapping
  const std::uint64_t rounded = rounded_allocation(size);
  Extent* extent = nullptr;
  const CUresult result =
      create_extent({.device = index, .kind = Kind::kMemory, .size = rounded, .handle_types = 0}, &extent);
  return result == CUDA_SUCCESS ? map_whole(context.id, *extent, use, out) : result;
}

CUresult Driver::map_whole(std::uint64_t owner, Extent& extent, Use use, CUdeviceptr* out) {
  const std::uint64_t size = extent.size;
  CUdeviceptr address = 0;
  const std::uint64_t alignment = size < kGranularity.count ? kibibytes(64).count : kGranularity.count;
  CUresult result =
      space.reserve({.size = size, .alignment = alignment, .use = use, .owner = owner}, &address);
  if (result == CUDA_SUCCESS) {
    result = space.map(address, size, extent);
    if (result == CUDA_SUCCESS) {
      result = space.set_access(address, size, {{extent.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}});
    }
    if (result != CUDA_SUCCESS) end_range(address, *space.find(address).reservation);
  }
  extent.handles = 0;  // held by its mapping alone
  handles->drop_if_unused(extent);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

CUresult Driver::free(CUdeviceptr address) {
  const auto found = space.find(address);
  const bool is_given = found.reservation != nullptr && (found.reservation->use == Use::kAllocation ||
                                                         found.reservation->use == Use::kManaged);
  if (!is_given || found.range_base != address) return CUDA_ERROR_INVALID_VALUE;
  end_range(address, *found.reservation);
  return CUDA_SUCCESS;
}

void Driver::end_range(CUdeviceptr address, Reservation range) {
  unmap(address, range.size);
  space.unreserve(address, range.size, range.owner);
  opened.erase(address);
  if (range.use == Use::kManaged) advice.forget(address, range.size);
}

CUresult Driver::unmap(CUdeviceptr address, std::uint64_t size) {
  std::vector<Extent*> released;
  const std::lock_guard no_copies(in_use);
  const CUresult result = space.unmap(address, size, released);
  for (Extent* extent : released) handles->drop_if_unused(*extent);
  return result;
}

}  // namespace gpumem::sim
