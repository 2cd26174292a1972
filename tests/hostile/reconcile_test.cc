// Looks at the devices, asked for in a loop.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>

#include <future>

#include "gpumem/v1/broker.grpc.pb.h"
#include "proto/lane.h"
#include "tests/hostile/as_user.h"
#include "tests/hostile/silent_clients.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct LooksOnDemand : BrokerTest {
  LooksOnDemand() : BrokerTest({.config = shared("reconcile_seconds = 0\n")}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  std::unique_ptr<v1::Monitor::Stub> monitor_of(uid_t uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    UniqueFd connection = connect_to_stream(broker_.folder() + "/" + kApiSocketName);
    ::fcntl(connection.get(), F_SETFL, O_NONBLOCK);
    return v1::Monitor::NewStub(grpc::CreateInsecureChannelFromFd("broker", connection.release()));
  }
  static grpc::Status look(v1::Monitor::Stub& monitor) {
    grpc::ClientContext context;
    v1::ReconcileRequest request;
    request.set_now(true);
    v1::ReconcileResponse response;
    return monitor.Reconcile(&context, request, &response);
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
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 64; ++i) calls.push_back(std::async(std::launch::async, [&] { return look(*one); }));
  EXPECT_TRUE(look(*other).ok());
  auto admin = cli::Monitor::connect(broker_.folder());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(admin->reconcile(true));
  for (auto& call : calls) call.get();
}

}  // namespace
}  // namespace gpumem::test
