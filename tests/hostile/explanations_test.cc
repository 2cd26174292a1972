// Explanations, asked for in a loop.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>

#include "gpumem/v1/broker.grpc.pb.h"
#include "proto/lane.h"
#include "tests/hostile/as_user.h"
#include "tests/hostile/silent_clients.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct Explanations : BrokerTest {
  Explanations() : BrokerTest({.config = shared()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  std::unique_ptr<v1::Monitor::Stub> explaining(uid_t uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    UniqueFd connection = connect_to_stream(broker_.folder() + "/" + kApiSocketName);
    ::fcntl(connection.get(), F_SETFL, O_NONBLOCK);
    return v1::Monitor::NewStub(grpc::CreateInsecureChannelFromFd("broker", connection.release()));
  }
  static grpc::StatusCode explain(v1::Monitor::Stub& monitor, const std::string& tenant) {
    grpc::ClientContext context;
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

}  // namespace
}  // namespace gpumem::test
