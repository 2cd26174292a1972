#include "tests/shim_memory/scene.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace gpumem::shim::test {
namespace {

std::map<std::string, Scene::Body>& scenes() {
  static auto* const kScenes = new std::map<std::string, Scene::Body>;
  return *kScenes;
}

int run_scene(const std::string& name) {
  const auto found = scenes().find(name);
  if (found == scenes().end()) return 2;
  found->second();
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace

Scene::Scene(const char* name, Body body) {
  if (scenes().emplace(name, body).second) return;
  std::fprintf(stderr, "two scenes are named %s\n", name);
  std::abort();
}

CUcontext start() {
  EXPECT_CU(calls::cuInit(0));
  CUcontext context = nullptr;
  EXPECT_CU(real<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
  return context;
}

Actor ShimMemory::actor(const std::string& scene, const Actor::Environment& more) const {
  Actor::Environment environment = more;  // of two values, the first counts
  environment.emplace_back("GPUMEM_RUNTIME_DIR", broker_.folder());
  environment.emplace_back("GPUMEM_REAL_LIBCUDA", broker_.driver_folder() + "/libcuda.so.1");
  return Actor(scene, environment);
}

void ShimMemory::expect_told_of_outside(const std::string& scene, std::uint64_t bytes,
                                        const Actor::Environment& more) {
  Actor one = actor(scene, more);
  one.await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.tenant("uid:0").outside() >= bytes; }));
  one.tell_and_await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.tenant("uid:0").outside() < bytes; }));
  one.tell_and_expect_success();
}

std::string ShimMemory::expect(const std::string& scene, const Actor::Environment& more) const {
  Actor one = actor(scene, more);
  EXPECT_TRUE(one.succeeds()) << one.output();
  return one.output();
}

}  // namespace gpumem::shim::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::strcmp(argv[1], "--scene") == 0) return gpumem::shim::test::run_scene(argv[2]);
  return RUN_ALL_TESTS();
}
