#pragma once
// What tests of copies and fills say in one word.
#include <cuda.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {

using Buffer = std::vector<unsigned char>;

inline constexpr std::size_t kSize = 4096;

inline const auto kNoStream = reinterpret_cast<CUstream>(0x1234);
inline const auto kNoContext = reinterpret_cast<CUcontext>(0x1234);

inline CUcontext context_of(CUdevice device) {
  CUcontext context = nullptr;
  EXPECT_CU(cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

/// 0, 1, 2 and so on, or always `value`.
inline Buffer counted() {
  Buffer bytes(kSize);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  return bytes;
}
inline Buffer filled(unsigned char value) { return Buffer(kSize, value); }

/// Memory of the current context's device.
inline CUdeviceptr holding(const Buffer& bytes) {
  CUdeviceptr memory = 0;
  EXPECT_CU(cuMemAlloc(&memory, bytes.size()));
  EXPECT_CU(cuMemcpyHtoD(memory, bytes.data(), bytes.size()));
  return memory;
}

inline Buffer content(CUdeviceptr memory) {
  Buffer bytes(kSize);
  EXPECT_CU(cuMemcpyDtoH(bytes.data(), memory, kSize));
  return bytes;
}

inline CUdeviceptr pinned(const Buffer& bytes) {
  void* host = nullptr;
  EXPECT_CU(cuMemAllocHost(&host, bytes.size()));
  std::memcpy(host, bytes.data(), bytes.size());
  return reinterpret_cast<CUdeviceptr>(host);
}

/// Runs `call` behind work that is held up; it returns before that is done, and nothing has moved then.
template <class Call>
void expect_in_order(CUdeviceptr memory, const Buffer& before, const Call& call) {
  const CUstream stream = stream_apart();
  Barrier barrier;
  barrier.put_in(stream);
  EXPECT_CU(call(stream));
  EXPECT_EQ(content(memory), before);
  barrier.open();
  EXPECT_CU(cuStreamSynchronize(stream));
}

}  // namespace gpumem::sim::test
