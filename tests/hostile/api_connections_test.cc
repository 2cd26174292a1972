// Connections of gRPC that do nothing: they take nobody's place.
#include <poll.h>
#include <sys/socket.h>

#include <csignal>
#include <string_view>
#include <thread>

#include "proto/lane.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

constexpr uid_t kIdler = 10'007;

// A broker with few descriptors: 16 connections of gRPC for a user, 32 in all, and 64 that say nothing.
struct FewDescriptorsForApi : BrokerTest {
  explicit FewDescriptorsForApi(std::vector<std::string> more = {})
      : BrokerTest(::geteuid() != 0 ? BrokerOptions{.config = kSomeSpare}
                                    : BrokerOptions{.config = kShared,
                                                    .arguments = std::move(more),
                                                    .user = test_user(10'001),
                                                    .open_files = 512}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  std::vector<UniqueFd> idle(int count, bool speaking, uid_t uid = kIdler) {
    const AsUser user(uid, BrokerProcess::kGroup);
    std::vector<UniqueFd> connections;
    for (int i = 0; i < count; ++i) {
      connections.push_back(connect_to_stream(broker_.folder() + "/" + kApiSocketName));
      if (speaking) begin_http2(connections.back().get());
    }
    return connections;
  }
  static long cut(const std::vector<UniqueFd>& connections) {
    return std::count_if(connections.begin(), connections.end(),
                         [](const UniqueFd& one) { return is_cut(one.get()); });
  }
};

TEST_F(FewDescriptorsForApi, AreNotUsedUpByConnectionsThatSayNothing) {
  const auto silent = idle(600, false);
  for (const uid_t uid : {10'002U, 10'003U}) {
    auto other = client_with(mebibytes(4), test_user(uid));
    EXPECT_EQ(other->leave(), 0);
  }
  EXPECT_TRUE(eventually([&] { return cut(silent) >= 600 - 32; })) << cut(silent);
  EXPECT_TRUE(eventually([&] { return broker_.log().find("have said nothing") != std::string::npos; }));
}

TEST_F(FewDescriptorsForApi, AreNotUsedUpByConnectionsThatMakeNoCall) {
  const auto speaking = idle(600, true);
  for (const uid_t uid : {10'002U, 10'003U}) {
    auto other = client_with(mebibytes(4), test_user(uid));
    EXPECT_EQ(other->leave(), 0);
  }
  EXPECT_TRUE(eventually([&] { return cut(speaking) >= 600 - 16; })) << cut(speaking);
  // Only some of the refusals within one second are logged.
  EXPECT_TRUE(eventually([&] {
    const auto another = idle(1, true);
    return broker_.log().find("connections of gRPC already") != std::string::npos;
  }));
}

TEST_F(FewDescriptorsForApi, LeaveRoomForTheAdministratorHoweverManyUsersIdle) {
  std::vector<std::vector<UniqueFd>> idlers;
  for (uid_t uid = 10'010; uid < 10'020; ++uid) idlers.push_back(idle(40, true, uid));
  auto monitor = cli::Monitor::connect(broker_.folder());  // as root
  ASSERT_TRUE(monitor);
  EXPECT_TRUE(monitor->status());
  EXPECT_TRUE(FrameLane(broker_.folder()).is_welcomed());
}

TEST_F(FewDescriptorsForApi, AreFreeAgainWhenTheConnectionsAreGone) {
  for (int round = 0; round < 5; ++round) {
    const auto speaking = idle(16, true);
    EXPECT_TRUE(eventually([&] { return cut(speaking) == 0; }));
  }
  EXPECT_TRUE(eventually([&] {
    auto again = idle(16, true);
    auto other = client_with(mebibytes(4), test_user(kIdler + 1));
    return other->leave() == 0 && cut(again) == 0;
  }));
}

// The broker has begun to speak. Waits for it.
bool is_answered(int socket) {
  pollfd waiting{socket, POLLIN, 0};
  return ::poll(&waiting, 1, 10'000) > 0 && (waiting.revents & POLLIN) != 0;
}

// Connections that end leave events in the loop's queue, which must not cut those that come at that moment.
// Each of those that end has an answer of gRPC under way.
TEST_F(FewDescriptorsForApi, AreNotCutWhenOthersClose) {
  constexpr std::string_view kPing("\0\0\x08\6\0\0\0\0\0 a ping ", 17);
  for (int round = 0; round < 100; ++round) {
    auto closing = idle(8, true);
    for (const UniqueFd& one : closing) ASSERT_TRUE(is_answered(one.get()));
    for (const UniqueFd& one : closing)
      static_cast<void>(::send(one.get(), kPing.data(), kPing.size(), MSG_NOSIGNAL));
    std::this_thread::sleep_for(std::chrono::microseconds(8 * round));  // at each moment of the answer
    ::kill(broker_.pid(), SIGSTOP);
    closing.clear();
    const auto coming = idle(8, false, kIdler + 1);
    ::kill(broker_.pid(), SIGCONT);
    for (const UniqueFd& one : idle(1, true))
      EXPECT_TRUE(is_answered(one.get()));  // it has taken all of them in
    ASSERT_EQ(cut(coming), 0) << round;
  }
}

struct Impatient : FewDescriptorsForApi {
  Impatient() : FewDescriptorsForApi({"--api-idle-ms", "300"}) {}
};

TEST_F(Impatient, ClosesConnectionsWithoutACall) {
  const auto speaking = idle(8, true);
  EXPECT_TRUE(eventually([&] { return cut(speaking) == 8; })) << cut(speaking);
  auto other = client_with(mebibytes(4), test_user(kIdler));
  EXPECT_EQ(other->leave(), 0);
}

TEST_F(Impatient, ServesAClientThatCallsAfterALongPause) {
  auto one = client_with(mebibytes(4), test_user(kIdler));
  const auto idlers = idle(1, true);
  EXPECT_TRUE(eventually([&] { return cut(idlers) == 1; }));  // so the client's has been closed, too
  EXPECT_TRUE(succeeded(one->ask({{"do", "ping"}})));
  EXPECT_EQ(one->leave(), 0);
}

TEST_F(FewDescriptorsForApi, AreNotHeldByConnectionsThatDoNotSpeakHttp2) {
  const auto silent = idle(1, false);
  EXPECT_EQ(::write(silent[0].get(), "GET / HTTP/1.1\r\n\r\n", 18), 18);
  EXPECT_TRUE(eventually([&] { return cut(silent) == 1; }));
}

}  // namespace
}  // namespace gpumem::test
