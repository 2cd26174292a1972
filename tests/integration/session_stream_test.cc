// A session by gRPC alone: it is asked on its stream, and ends with it.
#include "tests/support/lanes/session_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <thread>

#include "proto/lane.h"
#include "tests/integration/hostile_fixture.h"

namespace gpumem::test {
namespace {

using grpc::StatusCode;

struct SessionStreams : HostileTest {
  using HostileTest::HostileTest;
  SessionStream stream() { return SessionStream(broker_.folder()); }
  void expect_gone() {
    EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
  }
};

TEST_F(SessionStreams, CarryASessionFromOpenToGoodbye) {
  SessionStream one = stream();
  const v1::OpenSessionResponse opened = one.open("a notebook");
  EXPECT_NE(opened.session(), 0U);
  EXPECT_FALSE(opened.tenant().empty());
  ASSERT_EQ(opened.devices_size(), 1);
  EXPECT_EQ(opened.devices(0).uuid(), broker_.device().uuid());
  EXPECT_EQ(opened.devices(0).granularity(), mebibytes(2).count);
  EXPECT_EQ(broker_.sessions().at(0).label(), "a notebook");
  EXPECT_EQ(broker_.sessions().at(0).pid(), ::getpid());
  const std::uint64_t slice = one.open_slice(mebibytes(32));
  const v1::SessionAnswer granted = one.ask(growth(slice, mebibytes(6)));
  ASSERT_TRUE(granted.has_granted()) << granted.DebugString();
  std::uint64_t sum = 0;
  for (const v1::Lease& lease : granted.granted().leases()) sum += lease.size();
  EXPECT_EQ(sum, mebibytes(6).count);
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(6).count; }))
      << "nothing is to be accepted";
  v1::SessionRequest request;
  request.mutable_describe();
  const v1::SessionInfo described = one.ask(request).described();
  EXPECT_EQ(described.id(), opened.session());
  ASSERT_EQ(described.slices_size(), 1);
  EXPECT_EQ(described.slices(0).charged(), mebibytes(6).count);
  request.mutable_explain();
  const v1::ExplainResponse explained = one.ask(request).explained();
  EXPECT_EQ(explained.tenant(), opened.tenant());
  EXPECT_EQ(explained.devices(0).device(), opened.devices(0).uuid());
  EXPECT_TRUE(one.give_back(slice, granted.granted()).has_done());
  EXPECT_EQ(one.give_back(slice, granted.granted()).failed().code(), StatusCode::NOT_FOUND) << "twice";
  request.mutable_close_slice()->set_slice(slice);
  EXPECT_TRUE(one.ask(request).has_done());
  request.mutable_goodbye();
  EXPECT_NE(one.send(request), 0U);
  const grpc::Status status = one.end();
  EXPECT_TRUE(status.ok()) << status.error_message();
  expect_gone();
}

TEST_F(SessionStreams, TakeEveryOtherRequestOfASession) {
  SessionStream one = stream();
  const std::string device = one.open().devices(0).uuid();
  EXPECT_TRUE(one.ask(ping()).has_done());
  v1::SessionRequest request;
  request.mutable_charge()->set_device(device);
  request.mutable_charge()->set_bytes(mebibytes(2).count);
  EXPECT_TRUE(one.ask(request).has_done());
  EXPECT_EQ(broker_.device().outside(), mebibytes(2).count);
  request.mutable_spent()->set_device(device);
  EXPECT_TRUE(one.ask(request).has_done());
  request.mutable_spent()->set_device("GPU-x");
  EXPECT_EQ(one.ask(request).failed().code(), StatusCode::NOT_FOUND);
  request.mutable_cancel()->set_growth(987);
  EXPECT_TRUE(one.ask(request).has_done()) << "of what is over: nothing";
  request.mutable_open_slice()->set_device(device);
  request.mutable_open_slice()->set_label(std::string(200, 'x'));
  EXPECT_EQ(one.ask(request).failed().code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(one.ask(v1::SessionRequest()).failed().code(), StatusCode::INVALID_ARGUMENT) << "of no kind";
  EXPECT_TRUE(one.leave().ok());
}

TEST_F(SessionStreams, SayWhyAGrowthIsRefused) {
  SessionStream one = stream();
  one.open();
  const std::uint64_t slice = one.open_slice(mebibytes(4));
  const v1::SessionAnswer refused = one.ask(growth(slice, mebibytes(6)));
  EXPECT_EQ(refused.failed().code(), StatusCode::RESOURCE_EXHAUSTED) << refused.DebugString();
  EXPECT_EQ(refused.failed().denial().reason(), v1::Denial::REASON_SLICE_LIMIT);
  EXPECT_EQ(refused.failed().denial().asked(), mebibytes(6).count);
  const v1::SessionAnswer broken = one.ask(growth(slice + 1, mebibytes(2)));
  EXPECT_EQ(broken.failed().code(), StatusCode::NOT_FOUND) << broken.DebugString();
  v1::SessionRequest of_nothing;
  of_nothing.mutable_grow();
  EXPECT_EQ(one.ask(of_nothing).failed().code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(one.leave().ok());
}

TEST_F(SessionStreams, AnswerOthersWhileAGrowthWaits) {
  auto holder = client_with(kPool);
  SessionStream one = stream();
  one.open();
  const std::uint64_t slice = one.open_slice();
  const std::uint64_t waits = one.send(growth(slice, mebibytes(2), std::chrono::hours(1)));
  const v1::SessionAnswer waiting = one.receive(waits);
  ASSERT_TRUE(waiting.has_waiting()) << waiting.DebugString();
  EXPECT_GT(waiting.waiting().within_ms(), 0U);
  EXPECT_TRUE(one.ask(ping()).has_done());
  EXPECT_EQ(one.ask(growth(slice, mebibytes(4))).failed().code(), StatusCode::RESOURCE_EXHAUSTED)
      << "at once, since it may not wait";
  EXPECT_TRUE(succeeded(holder->shrink("a", {})));
  const v1::SessionAnswer granted = one.receive(waits);
  EXPECT_TRUE(granted.has_granted()) << granted.DebugString();
  EXPECT_TRUE(one.give_back(slice, granted.granted()).has_done());
  EXPECT_TRUE(one.leave().ok());
  EXPECT_EQ(holder->leave(), 0);
}

TEST_F(SessionStreams, WithdrawAGrowthThatWaits) {
  auto holder = client_with(kPool);
  SessionStream one = stream();
  one.open();
  const std::uint64_t waits = one.send(growth(one.open_slice(), mebibytes(2), std::chrono::hours(1)));
  ASSERT_TRUE(one.receive(waits).has_waiting());
  v1::SessionRequest cancel;
  cancel.mutable_cancel()->set_growth(waits);
  EXPECT_TRUE(one.ask(cancel).has_done());
  EXPECT_EQ(one.receive(waits).failed().code(), StatusCode::CANCELLED);
  EXPECT_TRUE(one.leave().ok());
  EXPECT_EQ(holder->leave(), 0);
}

TEST_F(SessionStreams, EndTheirSessionHoweverTheyEnd) {
  auto holder = client_with(mebibytes(200));
  for (const bool cancels : {false, true}) {
    SessionStream one = stream();
    one.open();
    const std::uint64_t slice = one.open_slice();
    EXPECT_TRUE(one.ask(growth(slice, mebibytes(16))).has_granted());
    const std::uint64_t waits = one.send(growth(slice, mebibytes(64), std::chrono::hours(1)));
    EXPECT_TRUE(one.receive(waits).has_waiting());
    if (cancels) one.cancel();
    const grpc::Status status = cancels ? one.end() : one.leave();
    EXPECT_EQ(status.error_code(), cancels ? StatusCode::CANCELLED : StatusCode::OK);
    EXPECT_TRUE(eventually(
        [&] { return broker_.sessions().size() == 1 && broker_.device().free() == mebibytes(24).count; }));
    EXPECT_EQ(broker_.device().waiting(), 0U);
  }
  EXPECT_EQ(holder->leave(), 0);
}

TEST_F(SessionStreams, EndWithTheirProcess) {
  ClientProcess client(broker_.folder());
  EXPECT_TRUE(succeeded(client.ask({{"do", "stream_open"}})));
  EXPECT_TRUE(succeeded(client.ask({{"do", "stream_grow"}, {"bytes", mebibytes(64).count}})));
  EXPECT_EQ(broker_.sessions().at(0).pid(), client.pid());
  client.kill();
  expect_gone();
}

TEST_F(SessionStreams, ThatNobodyReadsAreNotReadEither) {
  grpc::ChannelArguments little;  // or gRPC itself would take in what nobody has asked for
  little.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  little.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  little.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
  SessionStream one(grpc::CreateCustomChannel("unix:" + broker_.folder() + "/" + kApiSocketName,
                                              grpc::InsecureChannelCredentials(), little));
  one.open();
  const std::uint64_t slice = one.open_slice();
  EXPECT_TRUE(one.ask(growth(slice, mebibytes(16))).has_granted());
  for (int i = 0; i < 40; ++i) one.open_slice();
  v1::SessionRequest describe;
  describe.mutable_describe();
  std::atomic<int> sent = 0;
  std::thread asker([&] {
    while (one.send(describe) != 0) ++sent;
  });
  SessionStream other = stream();
  other.open();
  EXPECT_TRUE(eventually([&] {
    const int before = sent;
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(other.ask(ping()).has_done());
    return sent == before;
  })) << "requests are taken, and answers to them kept, without end";
  EXPECT_LT(sent, 100'000) << "more than fits into the connection";
  EXPECT_TRUE(other.leave().ok());
  one.cancel();
  asker.join();
  EXPECT_FALSE(one.end().ok());
  expect_gone();
}

TEST_F(SessionStreams, ThatBreakTheProtocolAreEnded) {
  {
    SessionStream one = stream();
    one.send(ping());
    EXPECT_EQ(one.end().error_code(), StatusCode::FAILED_PRECONDITION) << "opens nothing first";
  }
  {
    SessionStream one = stream();
    one.open();
    v1::SessionRequest again;
    again.mutable_open();
    one.send(again);
    EXPECT_EQ(one.end().error_code(), StatusCode::INVALID_ARGUMENT) << "opens twice";
  }
  {
    SessionStream one = stream();
    v1::SessionRequest open;
    open.mutable_open()->set_label("\x1b[2J");
    one.send(open);
    EXPECT_EQ(one.end().error_code(), StatusCode::INVALID_ARGUMENT) << "a label that cannot be shown";
  }
  SessionStream silent = stream();
  EXPECT_TRUE(silent.leave().ok()) << "no session was asked for, and none was opened";
  expect_gone();
}

TEST_F(SessionStreams, ThatOpenNothingInTimeAreEnded) {
  SessionStream one = stream();
  EXPECT_EQ(one.end().error_code(), StatusCode::DEADLINE_EXCEEDED);
  SessionStream other = stream();
  other.open();
  EXPECT_TRUE(other.leave().ok());
}

TEST_F(SessionStreams, AreToldThatTheBrokerStops) {
  SessionStream one = stream();
  one.open();
  EXPECT_TRUE(one.ask(growth(one.open_slice(), mebibytes(16))).has_granted());
  EXPECT_EQ(broker_.stop(), 0);
  EXPECT_EQ(one.end().error_code(), StatusCode::UNAVAILABLE);
  broker_.start_again();
}

TEST_F(SessionStreams, AreSeveralOnOneConnectionAndEachIsItsOwn) {
  const auto channel = connect_to_api(broker_.folder());
  SessionStream one(channel), other(channel);
  EXPECT_NE(one.open("one").session(), other.open("other").session());
  const std::uint64_t slice = one.open_slice();
  EXPECT_EQ(other.ask(growth(slice, mebibytes(2))).failed().code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(one.leave().ok());
  EXPECT_TRUE(other.ask(ping()).has_done());
  EXPECT_TRUE(other.leave().ok());
}

// daemon/rpc/server.h has the number. The client's gRPC learns it, and keeps further calls to itself.
TEST_F(SessionStreams, BeyondTheCallsOfAConnectionWaitUntilOneEnds) {
  constexpr std::size_t kMostCalls = 256;
  const auto channel = connect_to_api(broker_.folder());
  std::vector<std::unique_ptr<SessionStream>> calls;
  for (std::size_t i = 0; i < kMostCalls; ++i) {
    calls.push_back(std::make_unique<SessionStream>(channel));
    ASSERT_NE(calls.back()->open().session(), 0U) << "call " << i;
  }
  const auto monitor = v1::Monitor::NewStub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  v1::GetStatusResponse response;
  grpc::Status status;
  const auto call = monitor->AsyncGetStatus(&context, {}, &queue);
  call->Finish(&response, &status, &response);
  void* tag = nullptr;
  bool ok = false;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(broker_.sessions().size(), kMostCalls) << "other connections are served meanwhile";
    EXPECT_EQ(queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now()), grpc::CompletionQueue::TIMEOUT);
  }
  EXPECT_TRUE(calls.back()->leave().ok());
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_GE(response.sessions(), kMostCalls - 1);
  calls.clear();
  expect_gone();
}

struct FewSessions : SessionStreams {
  FewSessions()
      : SessionStreams(BrokerOptions{.config = std::string(kSomeSpare) + "max_sessions_per_tenant = 2\n"}) {}
};

TEST_F(FewSessions, OfATenantAreCountedHoweverTheyCome) {
  FrameLane by_lane = session();
  SessionStream one = stream();
  one.open();
  SessionStream another = stream();
  v1::SessionRequest open;
  open.mutable_open();
  another.send(open);
  const grpc::Status status = another.end();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("max_sessions_per_tenant"), std::string::npos);
  EXPECT_TRUE(one.leave().ok());
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 1; }));
  SessionStream last = stream();
  last.open();
  EXPECT_TRUE(last.leave().ok());
}

struct LendingStreams : BrokerTest {
  explicit LendingStreams(const std::string& lending = kLending) : BrokerTest({.config = shared(lending)}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(LendingStreams, AreToldHowMuchToGiveBack) {
  SessionStream one(broker_.folder());
  one.open();
  const std::uint64_t slice = one.open_slice();
  const v1::SessionAnswer granted = one.ask(growth(slice, kPool));
  ASSERT_TRUE(granted.has_granted()) << granted.DebugString();
  auto ann = client({}, test_user(10'001));
  ann->begin_to_grow("a", mebibytes(64), std::chrono::minutes(10));
  const v1::SessionAnswer asked = one.receive(0);
  ASSERT_EQ(asked.pressure().devices_size(), 1) << asked.DebugString();
  EXPECT_EQ(asked.pressure().devices(0).device(), one.opened().devices(0).uuid());
  EXPECT_GE(asked.pressure().devices(0).bytes(), mebibytes(64).count);
  EXPECT_GT(asked.pressure().devices(0).within_ms(), 0U);
  EXPECT_TRUE(one.give_back(slice, granted.granted()).has_done());
  EXPECT_TRUE(succeeded(ann->answer()));
  EXPECT_TRUE(one.leave().ok());
  EXPECT_EQ(ann->leave(), 0);
}

// As kLending, but for what follows when nobody gives anything back.
constexpr const char* kImpatient = R"(
lend_guarantees = true
reclaim_deadline_ms = 100
escalation = "end-session"
grace_seconds = 1
[[tenant]]
name = "ann"
user = 10001
guarantee = "64MiB"
)";

struct ImpatientLending : LendingStreams {
  ImpatientLending() : LendingStreams(kImpatient) {}
};

TEST_F(ImpatientLending, EndsTheProcessOfAStreamThatGivesNothingBack) {
  ClientProcess borrower(broker_.folder(), {.user = test_user(10'002)});
  EXPECT_TRUE(succeeded(borrower.ask({{"do", "stream_open"}})));
  EXPECT_TRUE(succeeded(borrower.ask({{"do", "stream_grow"}, {"bytes", kPool.count}})));
  auto ann = client({}, test_user(10'001));
  EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(64), std::chrono::minutes(10))));
  EXPECT_TRUE(eventually([&] { return broker_.log().find("SIGTERM sent") != std::string::npos; }))
      << broker_.log();
  EXPECT_EQ(ann->leave(), 0);
}

}  // namespace
}  // namespace gpumem::test
