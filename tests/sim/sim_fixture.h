#pragma once
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/unique_fd.h"

namespace gpumem::sim::test {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kPage = 2 * kMiB;  ///< the simulated granularity

/// One end of a channel between the test and a process of it. A side that has failed fatally waits no more:
/// what it left out may be what the other side waits for.
class Peer {
 public:
  explicit Peer(UniqueFd socket) : socket_(std::move(socket)) {}

  void signal() { send(-1); }
  /// Blocks until the other side signals or sends; fails the test if it ended instead.
  void await() { receive(); }
  /// Sends nothing more: what the other side still awaits fails there. Holds for copies in other processes
  /// too.
  void finish();
  /// Sends a copy of `fd`.
  void send(int fd);
  UniqueFd receive();

 private:
  UniqueFd socket_;
};

/// A process of its own that runs `body` and then ends, successfully if no expectation failed in it.
class Process {
 public:
  explicit Process(std::function<void(Peer&)> body);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Peer& peer() { return peer_; }
  pid_t pid() const { return pid_; }
  /// Waits for the end and tells it as wait(2) does. Finishes the channel first, so that a process which
  /// still awaits something ends as well.
  int join();
  /// Ends it with SIGKILL and waits. The channel stays, for processes that it has started.
  void kill();

 private:
  int wait();

  Peer peer_{UniqueFd()};
  pid_t pid_ = -1;
};

/// Runs `body` in a process of its own and expects it to succeed.
void in_process(const std::function<void()>& body);

/// A machine of `spec` for one test. The test's own process never initialises CUDA (its forks could not), but
/// looks at the machine through NVML.
class SimTest : public testing::Test {
 protected:
  explicit SimTest(std::string spec = "1x64MiB") : spec_(std::move(spec)) {}
  void SetUp() override;
  void TearDown() override;

  /// Bytes in use on a device, as NVML tells them.
  static std::uint64_t used(unsigned device = 0);

  std::string spec_;
  std::filesystem::path folder_;
};

// Calls that are expected to succeed.
CUmemAllocationProp properties(int device = 0);
CUmemGenericAllocationHandle create(std::uint64_t size, int device = 0);
CUdeviceptr reserve(std::uint64_t size);
UniqueFd exported(CUmemGenericAllocationHandle handle);
CUresult import(int fd, CUmemGenericAllocationHandle* handle);
CUresult set_access(CUdeviceptr address, std::uint64_t size, CUmemAccess_flags flags, int device = 0);
/// Reserves and maps `handle` with the given access.
CUdeviceptr mapped(CUmemGenericAllocationHandle handle, std::uint64_t size,
                   CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
/// Memory at a device address, for the direct look that only the simulation allows.
inline volatile unsigned char* bytes_at(CUdeviceptr address) {
  return reinterpret_cast<volatile unsigned char*>(address);
}

#define EXPECT_CU(expression) EXPECT_EQ(expression, CUDA_SUCCESS)
#define ASSERT_CU(expression) ASSERT_EQ(expression, CUDA_SUCCESS)

}  // namespace gpumem::sim::test
