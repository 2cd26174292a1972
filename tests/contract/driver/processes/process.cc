#include "tests/contract/driver/processes/process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/packet.h"

namespace gpumem::contract {
namespace {

constexpr unsigned kPatience = 110;  // seconds: a process that hangs ends, and so fails its test

}  // namespace

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

void Channel::tell(std::string_view text) { EXPECT_TRUE(send_packet(socket_.get(), text)); }

std::string Channel::hear() {
  std::string heard = try_hear();
  EXPECT_FALSE(heard.empty()) << "the other process has ended";
  return heard;
}

std::string Channel::try_hear() {
  auto packet = receive_packet(socket_.get(), 4096, 0);
  return packet ? packet->bytes : std::string();
}

void Channel::finish() { ::shutdown(socket_.get(), SHUT_WR); }

Process::Process(std::function<void(Channel&)> body) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(kPatience);
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

int Process::wait() {
  channel_.finish();
  int status = -1;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

void Process::join() {
  const int status = wait();
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
