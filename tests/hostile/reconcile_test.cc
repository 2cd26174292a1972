// Looks at the devices, asked for in a loop.
#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel_posix.h>

#include <atomic>
#include <deque>
#include <future>
#include <thread>

#include "gpumem/v1/broker.grpc.pb.h"
#include "proto/lane.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct LooksOnDemand : BrokerTest {
  explicit LooksOnDemand(const std::string& config = shared("reconcile_seconds = 0\n"))
      : BrokerTest({.config = config}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  std::unique_ptr<v1::Monitor::Stub> monitor_of(uid_t uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    UniqueFd connection = connect_to_stream(broker_.folder() + "/" + kApiSocketName);
    ::fcntl(connection.get(), F_SETFL, O_NONBLOCK);
    return v1::Monitor::NewStub(grpc::CreateInsecureChannelFromFd("broker", connection.release()));
  }
  static grpc::Status look(v1::Monitor::Stub& monitor) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::ReconcileRequest request;
    request.set_now(true);
    v1::ReconcileResponse response;
    return monitor.Reconcile(&context, request, &response);
  }

  // A connection whose client has not acknowledged the settings has fewer calls.
  std::unique_ptr<v1::Monitor::Stub> greeted_monitor() {
    auto monitor = monitor_of(10'002);
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    EXPECT_TRUE(monitor->GetStatus(&context, {}, &response).ok());
    return monitor;
  }

  /// How many of so many looks that one user asks for at once are refused before a second is over.
  int answered_at_once(int looks) {
    struct Asked {
      grpc::ClientContext context;
      v1::ReconcileRequest request;
      v1::ReconcileResponse response;
      std::promise<grpc::Status> status;
    };
    std::vector<std::unique_ptr<v1::Monitor::Stub>> monitors;
    std::deque<Asked> all;
    std::atomic<int> soon = 0;
    for (int i = 0; i < looks; i += 200) monitors.push_back(greeted_monitor());  // 256 calls at most of each
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < looks; ++i) {
      Asked& one = all.emplace_back();
      one.context.set_deadline(std::chrono::system_clock::now() + kPatience);
      one.request.set_now(true);
      monitors[static_cast<std::size_t>(i) / 200]->async()->Reconcile(
          &one.context, &one.request, &one.response, [&](grpc::Status status) {
            const bool refused = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
            if (refused && std::chrono::steady_clock::now() - began < std::chrono::milliseconds(900)) ++soon;
            one.status.set_value(status);
          });
    }
    for (Asked& one : all) one.status.get_future().wait();
    return soon;
  }
};

TEST_F(LooksOnDemand, OfOneUserHaveTurnsAndNoMoreThanSomeWait) {
  const auto monitor = monitor_of(10'002);
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 64; ++i)
    calls.push_back(std::async(std::launch::async, [&] { return look(*monitor); }));
  int done = 0, refused = 0;
  for (auto& call : calls) {
    const grpc::Status status = call.get();
    if (status.ok()) ++done;
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) ++refused;
  }
  EXPECT_GT(done, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(done + refused, 64);
}

TEST_F(LooksOnDemand, OfOneUserDoNotDelayAnothers) {
  const auto one = monitor_of(10'002), other = monitor_of(10'003);
  std::atomic<bool> over = false;
  std::atomic<int> refused = 0;
  std::vector<std::jthread> askers;  // there are always more than may wait
  for (int i = 0; i < 64; ++i) {
    askers.emplace_back([&] {
      while (!over)
        if (look(*one).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) ++refused;
    });
  }
  EXPECT_TRUE(eventually([&] { return refused != 0; }));
  auto admin = cli::Monitor::connect(broker_.folder());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(look(*other).ok());
    EXPECT_TRUE(admin->reconcile(true));
  }
  over = true;
}

// A refusal is answered after a second, unless many are held back or its user has many calls already.
TEST_F(LooksOnDemand, ThatAreRefusedAreHeldBackAsLongAsThereAreNotTooMany) {
  EXPECT_EQ(answered_at_once(60), 0);
  EXPECT_GT(answered_at_once(800), 0);
}

// The next look on the broker's own schedule comes after the test.
struct LooksPastAHolder : LooksOnDemand {
  LooksPastAHolder()
      : LooksOnDemand(
            "[broker]\nreserve = \"all-but 128MiB\"\nsocket_group = 10000\n"
            "past_broker = \"end\"\npast_broker_allowance = \"16MiB\"\n"
            "reconcile_seconds = 3600\npast_broker_confirm_seconds = 1\ngrace_seconds = 1\n") {}
};

TEST_F(LooksPastAHolder, EndNobodyHoweverManyThereAre) {
  const auto quiet = client({}, test_user(10'002));
  EXPECT_TRUE(succeeded(quiet->ask({{"do", "take"}, {"bytes", mebibytes(48).count}})));
  auto admin = cli::Monitor::connect(broker_.folder());
  const auto monitor = monitor_of(10'003);
  const auto is_seen = [&] {
    const auto seen = admin->reconcile(true);
    return seen && seen->devices(0).past_broker() >= mebibytes(32).count;
  };
  EXPECT_TRUE(eventually(is_seen));
  const auto first = std::chrono::steady_clock::now();
  do {  // many times the time after which a look of the broker's own would end it
    EXPECT_TRUE(is_seen());
    static_cast<void>(look(*monitor));
  } while (std::chrono::steady_clock::now() - first < std::chrono::seconds(4));
  EXPECT_TRUE(quiet->child().running());
  EXPECT_EQ(broker_.log().find("SIGTERM"), std::string::npos) << broker_.log();
  EXPECT_EQ(quiet->leave(), 0);
}

}  // namespace
}  // namespace gpumem::test
