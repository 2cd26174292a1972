#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/shim/calls.h"
#include "client/shim/real.h"
#include "tests/support/broker_process.h"
#include "tests/support/eventually.h"
#include "tests/support/stepped_program.h"
#include "tests/support/steps.h"

namespace gpumem::shim::test {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
/// The device of most tests: 256 MiB, of which 224 MiB are lent.
inline constexpr std::uint64_t kPool = 224 * kMiB;

#define EXPECT_CU(expression) EXPECT_EQ(expression, CUDA_SUCCESS)
#define ASSERT_CU(expression) ASSERT_EQ(expression, CUDA_SUCCESS)

/// A body that a process of its own can run.
class Scene {
 public:
  using Body = void (*)();
  /// Aborts if another scene of the program has this name.
  Scene(const char* name, Body body);
};

// In a scene: signals to and from the test.
inline void tell() { gpumem::test::tell_test(); }
inline void await() { gpumem::test::await_test(); }
inline void tell_and_await() { gpumem::test::tell_and_await_test(); }

/// In a scene: what the real driver does for `name`, which has not been called yet, from now on.
void stand_in(const char* name, void* function);

// In a scene: cuInit through the shim, and a current context of device 0.
CUcontext start();

/// In a scene: what cuMemGetInfo calls free.
inline std::size_t free_memory() {
  std::size_t free = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, nullptr));
  return free;
}

/// In a scene: a stream that does not wait for the default one.
inline CUstream new_stream() {
  CUstream stream = nullptr;
  EXPECT_CU(real<decltype(&::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

/// One byte of device memory, which the simulated driver lets the host touch.
inline volatile unsigned char& byte_at(CUdeviceptr at) {
  return *reinterpret_cast<volatile unsigned char*>(at);
}

/// A process that runs a scene.
class Actor : public gpumem::test::SteppedProgram {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  Actor(const std::string& scene, const Environment& environment)
      : SteppedProgram(
            {.program = "/proc/self/exe", .arguments = {"--scene", scene}, .environment = environment}) {}
};

/// A broker, and what processes on its machine need to know.
class ShimMemory : public testing::Test {
 protected:
  explicit ShimMemory(
      gpumem::test::BrokerOptions options = {.config = "[broker]\nreserve = \"all-but 32MiB\"\n"})
      : broker_(std::move(options)) {}

  /// With `more` in its environment.
  Actor actor(const std::string& scene, const Actor::Environment& more = {}) const;
  /// Runs the scene and expects it to succeed; what it said.
  std::string expect(const std::string& scene, const Actor::Environment& more = {}) const;
  /// Runs a scene, with `more` in its environment, that has the driver keep `bytes` of its own, tells,
  /// awaits, gives them up, tells, and awaits: the broker is told of them as long as they are there.
  void expect_told_of_outside(const std::string& scene, std::uint64_t bytes, const Actor::Environment& more);
  std::uint64_t charged() const { return broker_.device().pool() - broker_.device().free(); }

  gpumem::test::BrokerProcess broker_;
};

/// The body of a scene of this file.
#define SCENE(name)                                                      \
  void scene_of_##name();                                                \
  const gpumem::shim::test::Scene kScene_##name(#name, scene_of_##name); \
  void scene_of_##name()

/// A test that is one scene. The scene is named after both, so that tests of two fixtures can have one name.
#define SCENE_TEST(fixture, name)                       \
  TEST_F(fixture, name) { expect(#fixture "_" #name); } \
  SCENE(fixture##_##name)

}  // namespace gpumem::shim::test
