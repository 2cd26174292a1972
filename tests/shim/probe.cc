// A program that links libcuda.so.1 and libnvidia-ml.so.1 and knows nothing of shims: says which files it
// got, what it finds there, and, if told to `exec`, what a program finds that its child becomes.
#include <cuda.h>
#include <dlfcn.h>
#include <nvml.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

void say_file(const char* how, const void* address) {
  Dl_info info{};
  const bool is_known = address != nullptr && ::dladdr(address, &info) != 0;
  std::printf("%s %s\n", how, is_known ? info.dli_fname : "none");
}

int run_again(const char* program) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program, program, "open", nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const task = argc > 1 ? argv[1] : "";
  std::size_t total = 0;
  const CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) cuDeviceTotalMem(&total, 0);
  say_file("linked", ::dlsym(RTLD_DEFAULT, "cuInit"));
  say_file("nvml", ::dlsym(RTLD_DEFAULT, "nvmlInit_v2"));
  for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
    void* const library = std::strcmp(task, "open") == 0 ? ::dlopen(name, RTLD_NOW) : nullptr;
    if (library != nullptr) say_file(name, ::dlsym(library, "cuInit"));
  }
  std::printf("init %d total %zu nvml %d\n", result, total, nvmlInit());
  return std::strcmp(task, "exec") == 0 ? run_again(argv[0]) : 0;
}
