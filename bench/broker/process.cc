#include "bench/broker/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "bench/must.h"

namespace gpumem::bench {
namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe make_pipe() {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "cannot make a pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> as_argv(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

}  // namespace

Process Process::start(const std::vector<std::string>& command, int inherited) {
  Pipe input = make_pipe();
  Pipe output = make_pipe();
  const std::vector<char*> argv = as_argv(command);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  require(pid >= 0, "cannot fork", std::strerror(errno));
  if (pid == 0) {  // from here to exec only what is safe after a fork with threads
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(input.read.get(), STDIN_FILENO);
    ::dup2(output.write.get(), STDOUT_FILENO);
    if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  return {pid, std::move(input.write), std::move(output.read)};
}

Process Process::start_role(const std::string& role, std::vector<std::string> arguments, int inherited) {
  std::vector<std::string> command{"/proc/self/exe", "--role", role};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return start(command, inherited);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)) {}

Process::~Process() { join(); }

void Process::await_ready() {
  char byte = 0;
  require(::read(output_.get(), &byte, 1) == 1, "a process of the benchmark has ended early");
}

void Process::command(char what) {
  require(::write(input_.get(), &what, 1) == 1, "a process of the benchmark is gone");
  await_ready();
}

std::uint64_t Process::receive_number() {
  std::uint64_t number = 0;
  require(::read(output_.get(), &number, sizeof number) == sizeof number,
          "a process of the benchmark has ended early");
  return number;
}

void Process::signal(int number) const { ::kill(pid_, number); }

void Process::join() {
  if (pid_ <= 0) return;
  input_.reset();
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void announce_ready() { require(::write(STDOUT_FILENO, "r", 1) == 1, "the benchmark is gone"); }

void tell_number(std::uint64_t number) {
  require(::write(STDOUT_FILENO, &number, sizeof number) == sizeof number, "the benchmark is gone");
}

char next_command() {
  char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) == 1 ? byte : '\0';
}

}  // namespace gpumem::bench
