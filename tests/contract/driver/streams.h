#pragma once
#include <algorithm>

#include "tests/contract/driver/fixture.h"
#include "tests/support/host_gate.h"

namespace gpumem::contract {

/// The numbers of a test's buffer, and their bytes.
inline constexpr std::size_t kCount = 1024;
inline constexpr std::size_t kBytes = kCount * sizeof(unsigned);

// In a Process only, with a context.

/// Owns a stream.
class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) { must(calls().cuStreamCreate(&stream_, flags)); }
  ~Stream() { calls().cuStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

/// Owns an event.
class Event {
 public:
  explicit Event(unsigned flags = CU_EVENT_DEFAULT) { must(calls().cuEventCreate(&event_, flags)); }
  ~Event() { calls().cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator CUevent() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

/// Holds `stream` up until it is opened.
class Gate : public test::HostGate {
 public:
  explicit Gate(CUstream stream) { must(calls().cuLaunchHostFunc(stream, &wait, argument())); }
};

/// Pinned host memory of `count` numbers, zero at first.
class PinnedNumbers {
 public:
  explicit PinnedNumbers(std::size_t count) {
    void* start = nullptr;
    must(calls().cuMemAllocHost(&start, count * sizeof(unsigned)));
    data_ = static_cast<unsigned*>(start);
    std::fill_n(data_, count, 0U);
  }
  ~PinnedNumbers() { calls().cuMemFreeHost(data_); }
  PinnedNumbers(const PinnedNumbers&) = delete;
  PinnedNumbers& operator=(const PinnedNumbers&) = delete;

  unsigned* data() { return data_; }
  unsigned& operator[](std::size_t index) { return data_[index]; }

 private:
  unsigned* data_ = nullptr;
};

/// Device memory of `size` bytes from cuMemAlloc.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t size) { must(calls().cuMemAlloc(&address_, size)); }
  ~DeviceMemory() { calls().cuMemFree(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  operator CUdeviceptr() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

}  // namespace gpumem::contract
