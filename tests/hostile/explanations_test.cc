// Explanations, asked for in a loop.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>

#include <atomic>
#include <thread>

#include "gpumem/v1/broker.grpc.pb.h"
#include "proto/lane.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

struct Explanations : BrokerTest {
  Explanations() : BrokerTest({.config = shared()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  std::shared_ptr<grpc::Channel> connected(uid_t uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    UniqueFd connection = connect_to_stream(broker_.folder() + "/" + kApiSocketName);
    ::fcntl(connection.get(), F_SETFL, O_NONBLOCK);
    return grpc::CreateInsecureChannelFromFd("broker", connection.release());
  }
  std::unique_ptr<v1::Monitor::Stub> explaining(uid_t uid) { return v1::Monitor::NewStub(connected(uid)); }
  static grpc::StatusCode explain(v1::Monitor::Stub& monitor, const std::string& tenant) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::ExplainRequest request;
    request.set_tenant(tenant);
    v1::ExplainResponse response;
    return monitor.Explain(&context, request, &response).error_code();
  }
};

TEST_F(Explanations, OfOneUserAreBoundedAndDoNotDelayAnothers) {
  auto one = client({}, test_user(10'002)), other = client({}, test_user(10'003));
  const auto greedy = explaining(10'002), modest = explaining(10'003);
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 1000; ++i) {
      const auto code = explain(*greedy, "uid:10002");
      if (code == grpc::StatusCode::RESOURCE_EXHAUSTED) return true;
      if (code != grpc::StatusCode::OK) return false;
    }
    return false;
  }));
  EXPECT_EQ(explain(*modest, "uid:10003"), grpc::StatusCode::OK);
  EXPECT_TRUE(eventually([&] { return explain(*greedy, "uid:10002") == grpc::StatusCode::OK; }))
      << "nobody is refused for ever";
}

// Refused before anything counts or is worked out: the refusals of a whole second are the same.
TEST_F(Explanations, OfAnotherTenantAreRefusedHoweverManyAreAskedFor) {
  auto one = client({}, test_user(10'002));
  const auto curious = explaining(10'003);
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(explain(*curious, "uid:10002"), grpc::StatusCode::PERMISSION_DENIED);
}

struct Crowded : Explanations {
  static constexpr int kSessions = 500, kStreams = 100;  // of a connection
  static constexpr int kSlices = 64;

  /// Bob's sessions, each with so many slices.
  void SetUp() override {
    Explanations::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < kSessions; ++i) {
      if (i % kStreams == 0) channels_.push_back(connected(10'002));
      sessions_.push_back(std::make_unique<SessionStream>(channels_.back()));
      sessions_.back()->open();
      v1::SessionRequest request;
      request.mutable_open_slice()->set_device(sessions_.back()->opened().devices(0).uuid());
      for (int slice = 0; slice < kSlices; ++slice)
        ASSERT_TRUE(sessions_.back()->ask(request).has_slice_opened());
    }
  }
  void TearDown() override {
    for (auto& one : sessions_) one->cancel();
  }

  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<SessionStream>> sessions_;
};

TEST_F(Crowded, TenantIsNotLookedAtForSomebodyElseAndNobodyWaitsMeanwhile) {
  auto quiet = client({}, test_user(10'003));
  std::atomic<bool> over = false;
  std::vector<std::jthread> askers;
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&] {
      const auto curious = explaining(10'004), owner = explaining(10'002);
      while (!over) {
        EXPECT_EQ(explain(*curious, "uid:10002"), grpc::StatusCode::PERMISSION_DENIED);
        const auto own = explain(*owner, "uid:10002");
        EXPECT_TRUE(own == grpc::StatusCode::OK || own == grpc::StatusCode::RESOURCE_EXHAUSTED) << own;
      }
    });
  }
  const auto calls = Json{{"do", "paced"}, {"slice", "a"}, {"for_ms", 2000}, {"every_us", 5000}};
  const Json answer = quiet->ask(calls);
  over = true;
  EXPECT_TRUE(succeeded(answer));
  EXPECT_TRUE(answer.at("refused").empty()) << answer.at("refused");
  EXPECT_EQ(quiet->leave(), 0);
}

// By whatever transport a user asks, it is the same user.
TEST_F(Explanations, OfSessionsCountWithTheOthersOfTheirUser) {
  SessionStream stream(connected(10'002));
  stream.open();
  FrameLane lane = [&] {
    const AsUser user(10'002, BrokerProcess::kGroup);
    return FrameLane(broker_.folder());
  }();
  lane.greet();
  v1::SessionRequest request;
  request.mutable_explain();
  const auto is_refused = [&] {
    const v1::SessionAnswer answer = stream.ask(request);
    return answer.failed().code() == static_cast<int>(Code::kResourceExhausted);
  };
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 1000; ++i)
      if (is_refused()) return true;
    return false;
  })) << "of a stream";
  EXPECT_TRUE(eventually([&] {
    const FrameLane::Answer answer = lane.ask(lane::Explain{});
    if (answer.is(lane::Kind::kFailed)) return true;
    return false;
  })) << "of a lane";
  const auto monitor = explaining(10'002), other = explaining(10'003);
  auto one = client({}, test_user(10'003));
  EXPECT_TRUE(
      eventually([&] { return explain(*monitor, "uid:10002") == grpc::StatusCode::RESOURCE_EXHAUSTED; }));
  EXPECT_EQ(explain(*other, "uid:10003"), grpc::StatusCode::OK);
  EXPECT_TRUE(eventually([&] { return !is_refused(); })) << "nobody is refused for ever";
}

}  // namespace
}  // namespace gpumem::test
