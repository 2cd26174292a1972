// Descriptors whose close waits for a minute, sent to the broker: nobody notices. Each test is run as the
// kernel is, and as if it could not refuse descriptors.
#include "proto/lane.h"
#include "tests/hostile/clients/lingering_socket.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

enum class Kernel { kThisOne, kWithoutPassRights };

struct LingeringDescriptors : BrokerTest, testing::WithParamInterface<Kernel> {
  LingeringDescriptors()
      : BrokerTest({.config = kSomeSpare,
                    .arguments = GetParam() == Kernel::kThisOne
                                     ? std::vector<std::string>{}
                                     : std::vector<std::string>{"--without-pass-rights"}}) {}
  void SetUp() override { neighbour_ = client_with(mebibytes(4)); }
  void TearDown() override {
    EXPECT_EQ(neighbour_->leave(), 0);
    expect_rest();
  }

  /// Has `send` do it several times, and sees that neither the lane nor calls stand still meanwhile. (The
  /// fixture's own limits are far below the minute.)
  template <class Send>
  void expect_nobody_notices(Send send) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 6; ++i) {
      send();
      EXPECT_TRUE(succeeded(neighbour_->ask({{"do", "ping"}})));
      EXPECT_TRUE(succeeded(neighbour_->grow("a", mebibytes(8))));
      EXPECT_TRUE(succeeded(neighbour_->shrink("a", mebibytes(4))));
      auto newcomer = client_with(mebibytes(2));
      EXPECT_EQ(newcomer->leave(), 0);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, kLinger);
  }
  std::string api() const { return broker_.folder() + "/" + kApiSocketName; }

  static constexpr std::chrono::seconds kLinger{60};
  void send_one(int socket) { EXPECT_TRUE(lingering_.send_one(socket) || GetParam() == Kernel::kThisOne); }

  LingeringSockets lingering_;
  std::unique_ptr<ClientProcess> neighbour_;
};

TEST_P(LingeringDescriptors, OnALaneThatHasNotGreetedHoldNobodyUp) {
  expect_nobody_notices([&] {
    RawLane lane(broker_.folder());
    send_one(lane.socket());
  });
}

TEST_P(LingeringDescriptors, OnALaneThatHasGreetedHoldNobodyUp) {
  expect_nobody_notices([&] {
    FrameLane lane(broker_.folder());
    lane.greet();
    send_one(lane.raw().socket());
  });
}

TEST_P(LingeringDescriptors, QueuedBehindOtherMessagesHoldNobodyUp) {
  expect_nobody_notices([&] {
    RawLane lane(broker_.folder());
    EXPECT_TRUE(lane.send("not a message"));  // closed for this, perhaps before the next comes
    static_cast<void>(lingering_.send_one(lane.socket()));
  });
}

TEST_P(LingeringDescriptors, OnTheSocketOfGrpcHoldNobodyUp) {
  expect_nobody_notices([&] {
    const UniqueFd silent = connect_to_stream(api()), speaking = connect_to_stream(api());
    begin_http2(speaking.get());
    send_one(silent.get());
    send_one(speaking.get());
  });
}

TEST_P(LingeringDescriptors, DoNotHoldUpTheEnd) {
  std::vector<RawLane> lanes;
  std::vector<UniqueFd> streams;
  for (int i = 0; i < 8; ++i) {
    lanes.emplace_back(broker_.folder());
    send_one(lanes.back().socket());
    streams.push_back(connect_to_stream(api()));
    send_one(streams.back().get());
  }
  EXPECT_EQ(broker_.stop(), 0);
  neighbour_->kill();
  broker_.start_again();
  neighbour_ = client_with(mebibytes(4));
}

INSTANTIATE_TEST_SUITE_P(OnKernels, LingeringDescriptors,
                         testing::Values(Kernel::kThisOne, Kernel::kWithoutPassRights), [](const auto& one) {
                           return one.param == Kernel::kThisOne ? "ThisKernel" : "WithoutPassRights";
                         });

struct OldKernel : BrokerTest {
  OldKernel() : BrokerTest({.config = kSomeSpare, .arguments = {"--without-pass-rights"}}) {}
};

TEST_F(OldKernel, CutsOffClientsThatSendDescriptors) {
  FrameLane lane(broker_.folder());
  lane.greet();
  const LingeringSockets lingering;
  EXPECT_TRUE(lingering.send_one(lane.raw().socket()));
  EXPECT_TRUE(lane.raw().is_closed_by_broker());
  const UniqueFd stream = connect_to_stream(broker_.folder() + "/" + kApiSocketName);
  begin_http2(stream.get());
  EXPECT_TRUE(lingering.send_one(stream.get()));
  EXPECT_TRUE(eventually([&] { return is_cut(stream.get()); }));
  EXPECT_TRUE(eventually([&] { return broker_.sessions().empty(); }));
}

TEST_F(OldKernel, ServesCallsOfEverySizeThroughTheRelay) {
  auto one = client_with(mebibytes(64));
  EXPECT_TRUE(succeeded(one->write("a", 7)));
  SessionStream stream(broker_.folder());
  stream.open();
  v1::SessionRequest request;
  request.mutable_give_back()->set_slice(stream.open_slice());
  constexpr std::uint64_t kOfSevenBytes = std::uint64_t{1} << 48;  // 63 KB in all, which gRPC takes
  for (std::uint64_t i = 0; i < 9'000; ++i) request.mutable_give_back()->add_leases(kOfSevenBytes + i);
  EXPECT_TRUE(stream.ask(request).has_failed());
  EXPECT_TRUE(stream.ask(ping()).has_done());
  EXPECT_EQ(one->leave(), 0);
}

}  // namespace
}  // namespace gpumem::test
