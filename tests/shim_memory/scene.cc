#include "tests/shim_memory/scene.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>

namespace gpumem::shim::test {
namespace {

std::map<std::string, Scene::Body>& scenes() {
  static auto* const kScenes = new std::map<std::string, Scene::Body>;
  return *kScenes;
}

void send_byte(int fd) {
  const char byte = 1;
  EXPECT_EQ(::write(fd, &byte, 1), 1);
}
/// False: the other side has ended.
bool receive_byte(int fd) {
  char byte = 0;
  return ::read(fd, &byte, 1) == 1;
}

int run_scene(const std::string& name) {
  const auto found = scenes().find(name);
  if (found == scenes().end()) return 2;
  found->second();
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace

Scene::Scene(const char* name, Body body) { scenes()[name] = body; }

void tell() { send_byte(STDIN_FILENO); }
void await() {
  if (!receive_byte(STDIN_FILENO)) std::_Exit(3);  // the test has failed and gone
}

CUcontext start() {
  EXPECT_CU(calls::cuInit(0));
  CUcontext context = nullptr;
  EXPECT_CU(real<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
  return context;
}

Actor::Actor(const std::string& scene, const Environment& environment) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  channel_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  const std::string file = folder_ / "output";
  const UniqueFd output(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  child_ = std::make_unique<gpumem::test::Child>(gpumem::test::ChildOptions{.program = "/proc/self/exe",
                                                                            .arguments = {"--scene", scene},
                                                                            .environment = environment,
                                                                            .input = theirs.get(),
                                                                            .output = output.get()});
}

void Actor::tell() { send_byte(channel_.get()); }
void Actor::await() { EXPECT_TRUE(receive_byte(channel_.get())) << "the scene ended instead: " << output(); }
bool Actor::succeeds() { return child_->wait() == 0; }
std::string Actor::output() const { return gpumem::test::read_file(folder_ / "output"); }

Actor ShimMemory::actor(const std::string& scene, const Actor::Environment& more) const {
  Actor::Environment environment = more;  // of two values, the first counts
  environment.emplace_back("GPUMEM_RUNTIME_DIR", broker_.folder());
  environment.emplace_back("GPUMEM_REAL_LIBCUDA", broker_.driver_folder() + "/libcuda.so.1");
  return Actor(scene, environment);
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
