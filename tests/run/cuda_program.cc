// A program of the CUDA driver that tests have `gpumem run` start: it does what its first argument says.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

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

}  // namespace

int main(int argc, char** argv) {
  const Words words(argv + 1, argv + argc);
  if (words.empty()) return 2;
  const Words rest(words.begin() + 1, words.end());
  if (words[0] == "restarts") return restarts(rest);
  if (words[0] == "waits") return waits(rest);
  return 2;
}
