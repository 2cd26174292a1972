// How programs come to load the shim.
#include <cuda.h>

#include <sstream>

#include "tests/shim/fixture.h"
#include "tests/support/child.h"

namespace gpumem::shim::test {
namespace {

class ShimLoading : public ShimTest {
 protected:
  /// The output of the probe, without the lines of the shim itself.
  std::string run_probe(const char* task, Environment environment) const {
    for (const auto& more : without_broker()) environment.push_back(more);
    if (SHIM_TEST_SANITIZED)
      environment.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
    const gpumem::test::Outcome outcome = gpumem::test::run(
        {.program = SHIM_PROBE, .arguments = {task}, .environment = std::move(environment)});
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    std::istringstream lines(outcome.output);
    std::string said;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("gpumem: ")) said += line + "\n";
    }
    return said;
  }
  Environment in_front() const {
    return {{"LD_LIBRARY_PATH", shim_folder().string() + ":" + machine_.string()}};
  }
  Environment preloaded() const {
    const std::string folder = shim_folder().string();
    return {{"LD_PRELOAD", folder + "/libcuda.so.1:" + folder + "/libnvidia-ml.so.1"},
            {"LD_LIBRARY_PATH", machine_.string()}};
  }

  const std::string linked_ = "linked " + (shim_folder() / "libcuda.so.1").string() + "\nnvml " +
                              (shim_folder() / "libnvidia-ml.so.1").string() + "\n";
  const std::string works_ = "init 0 total 67108864 nvml 0\n";
};

TEST_F(ShimLoading, InFrontOfTheDriverItIsLinkedAndOpened) {
  const std::string folder = shim_folder().string();
  EXPECT_EQ(run_probe("open", in_front()), linked_ + "libcuda.so.1 " + folder + "/libcuda.so.1\n" +
                                               "libcuda.so " + folder + "/libcuda.so.1\n" + works_);
}

TEST_F(ShimLoading, PreloadedItIsLinkedAndOpened) {
  const std::string seen = run_probe("open", preloaded());
  EXPECT_EQ(seen.find(linked_ + "libcuda.so.1 " + shim_folder().string() + "/libcuda.so.1\n"), 0U) << seen;
  EXPECT_NE(seen.find(works_), std::string::npos) << seen;
}

TEST_F(ShimLoading, AProgramThatAnotherStartsHasItToo) {
  for (const Environment& environment : {in_front(), preloaded()}) {
    const std::string seen = run_probe("exec", environment);
    EXPECT_EQ(seen.find(linked_ + works_ + linked_), 0U) << seen;
    EXPECT_EQ(seen.rfind(works_), seen.size() - works_.size()) << seen;
  }
}

TEST_F(ShimLoading, AForkedChildOfAProcessThatHasNotCalledYetMayCall) {
  in_process([&] {
    const Opened shim(shim_folder() / "libcuda.so.1");
    in_process([&] { EXPECT_EQ(shim.get<decltype(::cuInit)>("cuInit")(0), CUDA_SUCCESS); });
    EXPECT_EQ(shim.get<decltype(::cuInit)>("cuInit")(0), CUDA_SUCCESS);
  });
}

TEST_F(ShimLoading, OpenedAndClosedAgainAndAgainItWorks) {
  in_process([] {
    void* first = nullptr;
    for (int round = 0; round < 100; ++round) {
      const Opened shim(shim_folder() / "libcuda.so.1");
      auto* const init = shim.get<decltype(::cuInit)>("cuInit");
      EXPECT_EQ(init(0), CUDA_SUCCESS);
      if (first == nullptr) first = reinterpret_cast<void*>(init);
      EXPECT_EQ(reinterpret_cast<void*>(init), first) << "a pointer that a program keeps stays good";
      shim.close();
    }
  });
}

}  // namespace
}  // namespace gpumem::shim::test
