#include "tests/support/client_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/packet.h"
#include "tests/support/broker_process.h"
#include "tests/support/eventually.h"

namespace gpumem::test {

ClientProcess::ClientProcess(const std::string& runtime_folder, ClientOptions options) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  channel_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  if (options.arguments.empty()) options.arguments = {"serve"};
  options.environment.emplace_back("GPUMEM_RUNTIME_DIR", runtime_folder);
  child_ = std::make_unique<Child>(ChildOptions{.program = test_client_program(),
                                                .arguments = std::move(options.arguments),
                                                .environment = std::move(options.environment),
                                                .user = options.user,
                                                .input = theirs.get(),
                                                .output = options.output});
}

int ClientProcess::leave() {
  channel_.reset();
  return child_->wait();
}

void ClientProcess::tell(const Json& command) {
  EXPECT_TRUE(send_packet(channel_.get(), command.dump()).has_value())
      << "the client is gone; told: " << command;
}

void ClientProcess::tell_if_there(const Json& command) {
  static_cast<void>(send_packet(channel_.get(), command.dump()));
}

bool ClientProcess::has_answer(std::chrono::milliseconds patience) const {
  pollfd waiting{channel_.get(), POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(patience.count())) > 0;
}

Json ClientProcess::answer(std::vector<UniqueFd>* descriptors) {
  constexpr std::size_t kMostBytes = 65'536;
  pollfd waiting{channel_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) <= 0) {
    ADD_FAILURE() << "the client does not answer";
    return {{"ok", false}, {"code", "no answer"}, {"message", ""}};
  }
  auto packet = receive_packet(channel_.get(), kMostBytes, 128);
  if (!packet || packet->bytes.empty())
    return {{"ok", false}, {"code", "gone"}, {"message", "the client has ended"}};
  if (descriptors != nullptr) *descriptors = std::move(packet->descriptors);
  return Json::parse(packet->bytes);
}

Json ClientProcess::connect(const std::string& label, std::chrono::milliseconds timeout) {
  return ask({{"do", "connect"}, {"label", label}, {"timeout_ms", timeout.count()}});
}

Json ClientProcess::open(const std::string& slice, Bytes limit, const std::string& device) {
  return ask({{"do", "open"}, {"slice", slice}, {"limit", limit.count}, {"device", device}});
}

void ClientProcess::begin_to_grow(const std::string& slice, Bytes target, std::chrono::milliseconds wait) {
  tell({{"do", "grow"}, {"slice", slice}, {"target", target.count}, {"wait_ms", wait.count()}});
}

Json ClientProcess::shrink(const std::string& slice, Bytes target) {
  return ask({{"do", "shrink"}, {"slice", slice}, {"target", target.count}});
}

Json ClientProcess::write(const std::string& slice, int value) {
  return ask({{"do", "write"}, {"slice", slice}, {"value", value}});
}

Json ClientProcess::check(const std::string& slice, int value) {
  return ask({{"do", "check"}, {"slice", slice}, {"value", value}});
}

}  // namespace gpumem::test
