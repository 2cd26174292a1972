// A program that tests have `gpumem run` start: it does what its first argument says.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
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

#include "client/shim/figures.h"

namespace {

using Words = std::vector<std::string>;

constexpr int kQuit = 3;  // the status of a program that was told to quit

void tell(const std::string& line) {
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
}

// Reads lines until `quit`, or the end.
void await_quit() {
  std::string line;
  char letter = 0;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    if (letter != '\n')
      line += letter;
    else if (std::exchange(line, {}) == "quit")
      return;
  }
}

// account PEAK WAITED_NS DENIALS LAST_DENIED exit|kill: as the drop-in driver does.
int account(const Words& words) {
  const std::string file =
      std::string(std::getenv("GPUMEM_ACCOUNT_FOLDER")) + "/account." + std::to_string(::getpid());
  const gpumem::shim::AccountPage page{gpumem::shim::kAccountMagic, std::stoull(words.at(0)),
                                       std::stoull(words.at(1)), std::stoull(words.at(2)),
                                       std::stoull(words.at(3))};
  const int opened = ::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (::write(opened, &page, sizeof page) != sizeof page) return 1;
  if (words.at(4) == "kill") ::raise(SIGKILL);
  return 0;
}

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
  await_quit();
  return kQuit;
}

// job PROGRAM...: a shell with one job, on the terminal that is its standard input.
int job(const Words& words) {
  ::setsid();
  ::ioctl(STDIN_FILENO, TIOCSCTTY, 0);
  ::signal(SIGTTOU, SIG_IGN);
  std::vector<char*> arguments;
  Words own = words;
  for (std::string& word : own) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    ::tcsetpgrp(STDIN_FILENO, ::getpid());
    ::signal(SIGTTOU, SIG_DFL);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
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
  await_quit();
  return kQuit;
}

// orphan WORDS...: leaves a child behind that does that, and ends when the child has.
int orphan(const Words& words);

int perform(const Words& words) {
  const Words rest(words.begin() + 1, words.end());
  if (words[0] == "account") return account(rest);
  if (words[0] == "signals") return signals(rest);
  if (words[0] == "job") return job(rest);
  if (words[0] == "map") return map(rest);
  if (words[0] == "orphan") return orphan(rest);
  return 2;
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
