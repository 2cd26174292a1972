#include "tests/contract/process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/packet.h"

namespace gpumem::contract {

void Channel::send(int descriptor) {
  const std::span<const int> descriptors(&descriptor, descriptor >= 0 ? 1 : 0);
  EXPECT_TRUE(send_packet(socket_.get(), "x", descriptors));
}

UniqueFd Channel::receive() {
  auto packet = receive_packet(socket_.get(), 1, 1);
  EXPECT_TRUE(packet && !packet->bytes.empty()) << "the other process has ended";
  if (!packet || packet->descriptors.empty()) return {};
  return std::move(packet->descriptors.front());
}

Process::Process(std::function<void(Channel&)> body) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    Channel channel{UniqueFd(ends[1])};
    body(channel);
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ::close(ends[1]);
  channel_ = Channel(UniqueFd(ends[0]));
}

Process::~Process() {
  if (pid_ > 0) kill();
}

void Process::join() {
  int status = -1;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
}

void Process::kill() {
  ::kill(pid_, SIGKILL);
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
}

void in_process(const std::function<void()>& body) {
  Process process([&](Channel&) { body(); });
  process.join();
}

}  // namespace gpumem::contract
