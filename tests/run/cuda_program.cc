// A program of the CUDA driver that tests have `gpumem run` start: it does what its first argument says.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using Words = std::vector<std::string>;

void tell(const std::string& line) {
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
}

// `name`  of the version that the header means.
template <class Function>
Function driver_call(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = driver != nullptr ? ::dlsym(driver, name) : nullptr;
  if (found == nullptr) {
    std::fprintf(stderr, "%s: %s\n", name, ::dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function>(found);
}

void start() {
  CUcontext context = nullptr;
  const bool started = driver_call<decltype(&::cuInit)>("cuInit")(0) == CUDA_SUCCESS &&
                       driver_call<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(
                           &context, 0) == CUDA_SUCCESS &&
                       driver_call<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context) == CUDA_SUCCESS;
  if (!started) std::exit(1);
}

CUresult allocate(const std::string& bytes) {
  CUdeviceptr at = 0;
  return driver_call<decltype(&::cuMemAlloc)>("cuMemAlloc_v2")(&at, std::stoull(bytes));
}

volatile std::sig_atomic_t told = 0;
void note_signal(int number) { told = number; }

void set_handler(int number, int flags) {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = flags;
  ::sigaction(number, &action, nullptr);
}

bool has_handler(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action.sa_handler == note_signal;
}

// waits HOW BYTES: allocates so much, and tells which signal came meanwhile.
// HOW  default: SIGINT has no handler; handler: it has one; restart: one after which calls are restarted;
//      thread: another thread than the first one waits; routine: SIGALRM has a handler.
int waits(const Words& words) {
  const std::string& how = words.at(0);
  const int number = how == "routine" ? SIGALRM : SIGINT;
  if (how != "default") set_handler(number, how == "handler" ? 0 : SA_RESTART);
  CUresult allocated = CUDA_ERROR_UNKNOWN;
  const auto run = [&] {
    start();
    tell("ready " + std::to_string(::getpid()) + "\n");
    allocated = allocate(words.at(1));
  };
  if (how == "thread")
    std::thread(run).join();
  else
    run();
  tell("signal " + std::to_string(told) + ", allocated: " + std::to_string(allocated) +
       (has_handler(number) || how == "default" ? "\n" : ", and the handler is gone\n"));
  return 0;
}

// restarts TIMES BYTES: allocates so much, and starts itself anew so many times, with the memory still there.
// The last one resets its context.
int restarts(const Words& words) {
  const int times = std::stoi(words.at(0));
  start();
  const CUresult allocated = allocate(words.at(1));
  tell("allocated: " + std::to_string(allocated) + "\n");
  if (allocated != CUDA_SUCCESS) return 1;
  if (times > 0)
    return ::execl("/proc/self/exe", "restarts", "restarts", std::to_string(times - 1).c_str(),
                   words.at(1).c_str(), nullptr);
  if (driver_call<decltype(&::cuDevicePrimaryCtxReset)>("cuDevicePrimaryCtxReset_v2")(0) != CUDA_SUCCESS)
    return 1;
  tell("ready " + std::to_string(::getpid()) + "\n");
  char word = 0;
  return ::read(STDIN_FILENO, &word, 1) == 1 ? 0 : 1;
}

// stays BYTES: makes a context and allocates so much, if anything; says what came of each, and stays until it
// is told to quit.
int stays(const Words& words) {
  CUcontext context = nullptr;
  CUresult result = driver_call<decltype(&::cuInit)>("cuInit")(0);
  if (result == CUDA_SUCCESS)
    result = driver_call<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0);
  if (result == CUDA_SUCCESS) result = driver_call<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context);
  tell("context: " + std::to_string(result) + "\n");
  if (result != CUDA_SUCCESS) return 1;
  if (words.at(0) != "0") result = allocate(words.at(0));
  tell("allocated: " + std::to_string(result) + "\n");
  if (result != CUDA_SUCCESS) return 1;
  tell("ready " + std::to_string(::getpid()) + "\n");
  char word = 0;
  return ::read(STDIN_FILENO, &word, 1) == 1 ? 0 : 1;
}

// contexts THREADS TIMES: so many threads retain the primary context at once; then another context is made
// and destroyed so often.
int contexts(const Words& words) {
  auto* const retain = driver_call<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  auto* const create = driver_call<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  auto* const destroy = driver_call<decltype(&::cuCtxDestroy_v2)>("cuCtxDestroy_v2");
  std::atomic<int> failed = driver_call<decltype(&::cuInit)>("cuInit")(0);
  std::vector<std::jthread> threads;
  for (int i = 0; i < std::stoi(words.at(0)); ++i)
    threads.emplace_back([&] {
      CUcontext context = nullptr;
      if (retain(&context, 0) != CUDA_SUCCESS) ++failed;
    });
  threads.clear();
  for (int i = 0; i < std::stoi(words.at(1)); ++i) {
    CUcontext context = nullptr;
    if (create(&context, 0, 0) != CUDA_SUCCESS || destroy(context) != CUDA_SUCCESS) ++failed;
  }
  tell("failed: " + std::to_string(failed) + "\n");
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Words words(argv + 1, argv + argc);
  if (words.empty()) return 2;
  const Words rest(words.begin() + 1, words.end());
  if (words[0] == "restarts") return restarts(rest);
  if (words[0] == "waits") return waits(rest);
  if (words[0] == "stays") return stays(rest);
  if (words[0] == "contexts") return contexts(rest);
  return 2;
}
