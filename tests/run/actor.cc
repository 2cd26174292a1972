// A program that tests have `gpumem run` start: it does what its first argument says.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gpumem/session.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

using Words = std::vector<std::string>;

constexpr int kQuit = 3;  // the status of a program that was told to quit

void tell(const std::string& line) {
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
}

// Reads lines until `word`, or the end.
void await(const std::string& word) {
  std::string line;
  char letter = 0;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    if (letter != '\n')
      line += letter;
    else if (std::exchange(line, {}) == word)
      return;
  }
}

template <class Function, class... Arguments>
CUresult call(void* library, const char* name, Arguments... arguments) {
  auto* const function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_FOUND;
}

// Memory of the first device, by the driver that a program finds. Empty, or what went wrong.
std::string borrow_by_driver(std::size_t bytes) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return ::dlerror();
  CUcontext context = nullptr;
  CUdeviceptr at = 0;
  CUresult result = call<decltype(::cuInit)>(driver, "cuInit", 0U);
  if (result == CUDA_SUCCESS)
    result = call<decltype(::cuDevicePrimaryCtxRetain)>(driver, "cuDevicePrimaryCtxRetain", &context, 0);
  if (result == CUDA_SUCCESS) result = call<decltype(::cuCtxSetCurrent)>(driver, "cuCtxSetCurrent", context);
  if (result == CUDA_SUCCESS) result = call<decltype(::cuMemAlloc_v2)>(driver, "cuMemAlloc_v2", &at, bytes);
  return result == CUDA_SUCCESS ? "" : "error " + std::to_string(result);
}

// Memory of the first device, by the library. The session and the memory stay until the process ends.
std::string borrow_by_library(std::size_t bytes) {
  static auto session = gpumem::Session::connect();
  if (!session) return session.error().message;
  static auto allocator = session->open_allocator();
  if (!allocator) return allocator.error().message;
  const auto block = allocator->allocate({bytes});
  return block ? "" : block.error().message;
}

// borrow driver|library BYTES END: takes so much memory and says what came of it. END is exit, kill, stay
// (until it is ended), or stay-asked: it takes the memory when it is told to, and stays until it is told to
// quit.
int borrow(const Words& words) {
  const std::string& end = words.at(2);
  if (end == "stay-asked") {
    tell("ready " + std::to_string(::getpid()) + "\n");
    await("take");
  }
  const std::size_t bytes = std::stoull(words.at(1));
  const std::string wrong = words.at(0) == "driver" ? borrow_by_driver(bytes) : borrow_by_library(bytes);
  tell(wrong.empty() ? "has it\n" : "has it not: " + wrong + "\n");
  if (end == "kill") ::raise(SIGKILL);
  if (end == "stay") ::pause();
  if (end == "stay-asked") await("quit");
  ::_exit(0);  // as it is: with the memory
}

// fill: takes blocks of 64 MiB by the library until one is refused, says how many, and stays until told to
// quit.
int fill(const Words&) {
  int blocks = 0;
  std::string wrong;
  for (; wrong.empty(); ++blocks) wrong = borrow_by_library(std::size_t{64} << 20);
  tell("has " + std::to_string(blocks - 1) + " blocks: " + wrong + "\n");
  await("quit");
  ::_exit(0);
}

// pair WORDS...: has two children do that, and keeps them until it is told to quit.
int pair(const Words& words);

void on_signal(int number) {
  const int before = errno;
  char line[] = "got 00\n";
  line[4] = static_cast<char>('0' + number / 10);
  line[5] = static_cast<char>('0' + number % 10);
  if (::write(STDOUT_FILENO, line, sizeof line - 1) < 0) ::_exit(1);
  errno = before;
}

// signals: tells of each signal that may be caught, until it is told to quit.
int signals(const Words&) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT})
    ::sigaction(number, &action, nullptr);
  sigset_t none;  // signals that were blocked at its start arrive now
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool in_front = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
  tell("ready " + std::to_string(::getpid()) + (in_front ? " in front\n" : " not in front\n"));
  await("quit");
  return kQuit;
}

[[noreturn]] void become(Words words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

void lead_session() {
  ::setsid();
  ::ioctl(STDIN_FILENO, TIOCSCTTY, 0);
}

// lead PROGRAM...: becomes a program that leads the session of the terminal that is its standard input.
int lead(const Words& words) {
  lead_session();
  become(words);
}

// job PROGRAM...: a shell with one job, on the terminal that is its standard input.
int job(const Words& words) {
  lead_session();
  ::signal(SIGTTOU, SIG_IGN);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    ::tcsetpgrp(STDIN_FILENO, ::getpid());
    ::signal(SIGTTOU, SIG_DFL);
    become(words);
  }
  int status = 0;
  while (::waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)) {
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
    tell("job stopped\n");
    ::tcsetpgrp(STDIN_FILENO, pid);
    ::kill(-pid, SIGCONT);
  }
  ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
  tell(WIFEXITED(status) ? "job exited " + std::to_string(WEXITSTATUS(status)) + "\n"
                         : "job ended by signal " + std::to_string(WTERMSIG(status)) + "\n");
  return 0;
}

// map [LIBRARY...]: loads them, those with `apart:` before them into a namespace of their own, and stays.
int map(const Words& words) {
  for (const std::string& library : words) {
    const std::string apart = "apart:";
    void* loaded = library.starts_with(apart)
                       ? ::dlmopen(LM_ID_NEWLM, library.c_str() + apart.size(), RTLD_NOW)
                       : ::dlopen(library.c_str(), RTLD_NOW);
    if (loaded == nullptr) {
      std::cerr << ::dlerror() << "\n";
      return 1;
    }
  }
  tell("ready " + std::to_string(::getpid()) + "\n");
  await("quit");
  return kQuit;
}

// orphan WORDS...: leaves a child behind that does that, and ends when the child has.
int orphan(const Words& words);

int perform(const Words& words) {
  const Words rest(words.begin() + 1, words.end());
  if (words[0] == "borrow") return borrow(rest);
  if (words[0] == "fill") return fill(rest);
  if (words[0] == "pair") return pair(rest);
  if (words[0] == "signals") return signals(rest);
  if (words[0] == "job") return job(rest);
  if (words[0] == "lead") return lead(rest);
  if (words[0] == "map") return map(rest);
  if (words[0] == "orphan") return orphan(rest);
  return 2;
}

int pair(const Words& words) {
  const pid_t self = ::getpid();
  for (int i = 0; i < 2; ++i) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == self) perform(words);
    ::_exit(0);
  }
  await("quit");
  ::_exit(0);  // the kernel ends the children
}

int orphan(const Words& words) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return 1;
  if (::fork() == 0) {
    if (::fork() == 0) ::_exit(perform(words));
    ::_exit(0);
  }
  ::wait(nullptr);
  ::close(ends[1]);
  char nothing = 0;
  return ::read(ends[0], &nothing, 1) == 0 ? 0 : 1;  // the end of file is the grandchild's end
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return perform({argv + 1, argv + argc});
}
