// Copies and fills: what the calls mean as transfers (sim/driver/memory/transfer.h), and when they are done:
// in stream order, by the stream's thread; a call without a stream waits for its work in the default stream.
#include <cuda.h>

#include "calls.h"
#include "sim/control/control.h"
#include "sim/driver/driver.h"
#include "sim/driver/memory/transfer.h"
#include "sim/exports/gate.h"

namespace gpumem::sim {
namespace {

/// The device of the context that `what` is done in, which is the calling thread's current one.
CUresult current_device(Call& driver, std::uint32_t* device) {
  Context* context = nullptr;
  const CUresult result = driver->current(&context);
  if (result == CUDA_SUCCESS) *device = driver->device(context->ordinal);
  return result;
}

void set_device(Fill& fill, std::uint32_t device) { fill.to.device = device; }
void set_device(Copy& copy, std::uint32_t device) { copy.to.device = copy.from.device = device; }

/// Whether the host may go on before the work is done: not where pageable memory is read or written.
bool may_return_early(Call& /*driver*/, const Fill&) { return true; }
bool may_return_early(Call& driver, const Copy& copy) {
  for (const Place& place : {copy.to, copy.from}) {
    const bool is_host = driver->space.find(place.address).reservation == nullptr;
    if (is_host && !driver->is_host_memory(place.address, 1)) return false;
  }
  return true;
}

CopyAction action_of(const Copy& copy, std::uint64_t context) { return {copy, context}; }
FillAction action_of(const Fill& fill, std::uint64_t context) { return {fill, context}; }

template <class What>
CUresult queue(const What& what, const StreamRef& stream, Call& driver) {
  const std::uint64_t context = options_of(*stream).context;
  const auto cost = Gate::take_cost_of_bytes();
  if (driver->captures.find(*stream) != nullptr) {
    driver->captures.add(*stream, action_of(what, context));
    return CUDA_SUCCESS;
  }
  const Ticket done = driver->streams.submit(stream, [what, context, cost] {
    spend(cost);
    if (const CUresult result = perform(what); result != CUDA_SUCCESS) Driver::get().fail(context, result);
  });
  if (may_return_early(driver, what)) return CUDA_SUCCESS;
  driver.wait({done});
  return CUDA_SUCCESS;
}

/// Does `what` in the order of `stream`, without waiting for it.
template <class What>
CUresult enqueue(What what, CUstream handle, bool has_devices = false) {
  Call driver;
  if (!driver) return driver.error();
  std::uint32_t device = 0;
  if (const CUresult result = current_device(driver, &device); result != CUDA_SUCCESS) return result;
  if (!has_devices) set_device(what, device);
  StreamRef stream;
  if (const CUresult result = driver->queue(handle, &stream); result != CUDA_SUCCESS) return result;
  if (what.shape.is_empty()) return CUDA_SUCCESS;
  const bool is_captured = driver->captures.find(*stream) != nullptr;
  const CUresult valid = is_captured ? check_later(driver, what) : check(driver, what);
  if (valid != CUDA_SUCCESS) return valid;
  settle_sides(driver, what);
  return queue(what, stream, driver);
}

/// Does `what` in the order of the default stream and waits for it.
template <class What>
CUresult finish(What what, bool has_devices = false) {
  Call driver;
  if (!driver) return driver.error();
  std::uint32_t device = 0;
  if (const CUresult result = current_device(driver, &device); result != CUDA_SUCCESS) return result;
  if (!has_devices) set_device(what, device);
  StreamRef stream;
  if (const CUresult result = driver->queue_uncaptured(nullptr, &stream); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = driver->captures.check_unsafe(); result != CUDA_SUCCESS) return result;
  if (what.shape.is_empty()) return CUDA_SUCCESS;
  if (const CUresult result = check(driver, what); result != CUDA_SUCCESS) return result;
  driver.unlock();
  CUresult result = CUDA_SUCCESS;
  driver->streams.run(stream, [&] { result = perform(what); });
  return result;
}

Place device(CUdeviceptr address) { return {.address = address, .side = Side::kDevice}; }
Place any(CUdeviceptr address) { return {.address = address}; }
Place host(const void* address) { return any(reinterpret_cast<CUdeviceptr>(address)); }
Copy row(Place to, Place from, size_t size) { return {to, from, {.width = size}}; }

template <class Parameters>
CUresult finish_shaped(const Parameters* parameters) {
  Copy copy;
  const CUresult result = read_parameters(parameters, &copy);
  return result == CUDA_SUCCESS ? finish(copy) : result;
}

template <class Parameters>
CUresult enqueue_shaped(const Parameters* parameters, CUstream stream) {
  Copy copy;
  const CUresult result = read_parameters(parameters, &copy);
  return result == CUDA_SUCCESS ? enqueue(copy, stream) : result;
}

/// `count` elements in a row, or rows of them.
template <class Element>
CUresult elements(CUdeviceptr to, size_t pitch, Element value, size_t count, size_t rows, Fill* out) {
  std::uint64_t width = 0;
  if (__builtin_mul_overflow(count, sizeof value, &width)) return CUDA_ERROR_INVALID_VALUE;
  Place place = device(to);
  place.row_pitch = pitch;
  *out = {place, {.width = width, .height = rows}, value, sizeof value};
  return CUDA_SUCCESS;
}

template <class Element>
CUresult set(CUdeviceptr to, size_t pitch, Element value, size_t count, size_t rows) {
  Fill fill;
  const CUresult result = elements(to, pitch, value, count, rows, &fill);
  return result == CUDA_SUCCESS ? finish(fill) : result;
}

template <class Element>
CUresult set(CUdeviceptr to, size_t pitch, Element value, size_t count, size_t rows, CUstream stream) {
  Fill fill;
  const CUresult result = elements(to, pitch, value, count, rows, &fill);
  return result == CUDA_SUCCESS ? enqueue(fill, stream) : result;
}

}  // namespace

CUresult api::cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size) {
  return finish(row(device(to), host(from), size));
}
CUresult api::cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size) {
  return finish(row(host(to), device(from), size));
}
CUresult api::cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return finish(row(device(to), device(from), size));
}
CUresult api::cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return finish(row(any(to), any(from), size));
}
CUresult api::cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t size) {
  Copy copy = row(device(to), device(from), size);
  const CUresult result = set_contexts(copy, to_context, from_context);
  return result == CUDA_SUCCESS ? finish(copy, true) : result;
}

CUresult api::cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return enqueue(row(device(to), host(from), size), stream);
}
CUresult api::cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return enqueue(row(host(to), device(from), size), stream);
}
CUresult api::cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return enqueue(row(device(to), device(from), size), stream);
}
CUresult api::cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return enqueue(row(any(to), any(from), size), stream);
}
CUresult api::cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t size, CUstream stream) {
  Copy copy = row(device(to), device(from), size);
  const CUresult result = set_contexts(copy, to_context, from_context);
  return result == CUDA_SUCCESS ? enqueue(copy, stream, true) : result;
}

CUresult api::cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return finish_shaped(copy); }
CUresult api::cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return finish_shaped(copy); }
CUresult api::cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return finish_shaped(copy); }
CUresult api::cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return enqueue_shaped(copy, stream);
}
CUresult api::cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return enqueue_shaped(copy, stream);
}
CUresult api::cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* parameters) {
  Copy copy;
  const CUresult result = read_parameters(parameters, &copy);
  return result == CUDA_SUCCESS ? finish(copy, true) : result;
}
CUresult api::cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* parameters, CUstream stream) {
  Copy copy;
  const CUresult result = read_parameters(parameters, &copy);
  return result == CUDA_SUCCESS ? enqueue(copy, stream, true) : result;
}

CUresult api::cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return set(to, 0, value, count, 1);
}
CUresult api::cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return set(to, 0, value, count, 1);
}
CUresult api::cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return set(to, 0, value, count, 1);
}
CUresult api::cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                              size_t height) {
  return set(to, pitch, value, width, height);
}
CUresult api::cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                               size_t height) {
  return set(to, pitch, value, width, height);
}
CUresult api::cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                               size_t height) {
  return set(to, pitch, value, width, height);
}
CUresult api::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return set(to, 0, value, count, 1, stream);
}
CUresult api::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return set(to, 0, value, count, 1, stream);
}
CUresult api::cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return set(to, 0, value, count, 1, stream);
}
CUresult api::cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                size_t height, CUstream stream) {
  return set(to, pitch, value, width, height, stream);
}
CUresult api::cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                                 size_t height, CUstream stream) {
  return set(to, pitch, value, width, height, stream);
}
CUresult api::cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                                 size_t height, CUstream stream) {
  return set(to, pitch, value, width, height, stream);
}

}  // namespace gpumem::sim
