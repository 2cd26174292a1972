// Ctrl-C while a program waits for memory that others hold. Every program may wait for an hour.
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

constexpr Bytes kWanted = mebibytes(64);

struct Interrupted : RunTest {
  void SetUp() override {
    ASSERT_TRUE(holder_.connect().at("ok"));
    ASSERT_TRUE(holder_.open("a").at("ok"));
    ASSERT_TRUE(holder_.grow("a", {broker_.device().free()}).at("ok"));
  }

  RunningCli waiting(const std::vector<std::string>& command) const {
    std::vector<std::string> arguments{"run", "--wait", "1h", "--"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    RunningCli running(std::move(arguments), with({{"GPUMEM_SHIM_FOLDER", ""}}));
    EXPECT_TRUE(waits()) << running.said();
    return running;
  }
  RunningCli waiting_program(const std::string& how) const {
    return waiting({GPUMEM_TEST_CUDA_PROGRAM, "waits", how, std::to_string(kWanted.count)});
  }
  bool waits(bool waits = true) const {
    return eventually([&] { return (broker_.device().waiting() != 0) == waits; });
  }
  void expect_interrupted(RunningCli& running, const std::string& says_then) const {
    ::kill(running.pid_of_command(), SIGINT);
    EXPECT_TRUE(running.has_said(says_then));
    EXPECT_TRUE(running.has_said("of 64MiB is given up: the wait was ended by a signal, SIGINT"));
    EXPECT_EQ(running.wait(), 0) << running.said();
    EXPECT_TRUE(waits(false)) << "the request is withdrawn";
  }

  ClientProcess holder_{broker_.folder()};
};

TEST_F(Interrupted, ProgramWithoutAHandlerEnds) {
  RunningCli running = waiting_program("default");
  ::kill(running.pid_of_command(), SIGINT);
  EXPECT_EQ(running.wait(), -SIGINT) << running.said();
  EXPECT_TRUE(waits(false));
}

TEST_F(Interrupted, WaitEndsWhereTheProgramHasAHandler) {
  for (const char* how : {"handler", "restart", "thread"}) {
    SCOPED_TRACE(how);
    RunningCli running = waiting_program(how);
    expect_interrupted(running, "signal 2, allocated: 2\n");
  }
}

TEST_F(Interrupted, WaitGoesOnAfterAnyOtherSignal) {
  RunningCli running = waiting_program("routine");
  ::kill(running.pid_of_command(), SIGALRM);
  EXPECT_TRUE(holder_.shrink("a", {}).at("ok"));
  EXPECT_EQ(running.wait(), 0);
  EXPECT_TRUE(says(running.said(), "signal 14, allocated: 0\n"));
}

// The main thread runs Python's handlers once the call has returned. `others`: there are threads that the
// kernel could choose for the signal.
constexpr const char* kPython = R"(
import ctypes, os, sys, threading, time
driver, how, at = ctypes.CDLL("libcuda.so.1"), sys.argv[1], ctypes.c_uint64()
def allocate():
    context = ctypes.c_void_p()
    driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
    print("ready", os.getpid(), flush=True)
    return driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(sys.argv[2])))
if how == "others":
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
try:
    allocate()
    time.sleep(3600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
)";

TEST_F(Interrupted, WaitEndsWithPythonsKeyboardInterrupt) {
  for (const char* how : {"alone", "others"}) {
    SCOPED_TRACE(how);
    RunningCli running = waiting({GPUMEM_TEST_PYTHON, "-c", kPython, how, std::to_string(kWanted.count)});
    expect_interrupted(running, "interrupted\n");
  }
}

}  // namespace
}  // namespace gpumem::test
