// Every request on a session's stream is answered.
#include "daemon/rpc/session_calls.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/fuzz/fake_stream.h"
#include "tests/support/no_executor.h"

namespace gpumem::rpc {
namespace {

core::Policy policy() {
  core::Policy one;
  one.devices = {{"GPU-0", "one", mebibytes(64), mebibytes(64), mebibytes(2)}};
  one.others = {{{.guarantee = {}, .limit = mebibytes(64)}}};
  return one;
}

/// Answers at once. What waits is refused.
struct PromptExecutor final : test::NoExecutor {
  explicit PromptExecutor(core::Broker& of) : broker(of) {}
  void post(Work work) override { work(broker, now); }
  void after(std::function<void()> done) override { done(); }
  Result<SessionId> open_session(int, std::string label, core::CommandJobId,
                                 std::shared_ptr<core::SessionHolder>) override {
    return broker.open_session({.pid = 1, .uid = 1, .gids = {1}, .command = "test"}, std::move(label), now);
  }
  RequestId grow(SessionId, const core::Grow&, GrowAnswer answer) override {
    answer(core::GrowFailure{{Code::kResourceExhausted, "nothing is there"}, {}});
    return {};
  }
  RequestId reserve_for_job(SessionId, const core::ReserveForJob&, GrowAnswer answer) override {
    answer(core::GrowFailure{{Code::kResourceExhausted, "nothing is there"}, {}});
    return {};
  }
  core::Broker& broker;
  const core::TimePoint now{std::chrono::hours(1)};
};

/// The session of one stream.
struct StreamCalls : testing::Test {
  StreamCalls() {
    v1::SessionRequest request;
    request.set_id(1);
    request.mutable_open();
    const auto answer = ask(request);
    EXPECT_TRUE(answer && answer->has_opened());
  }
  /// None: it is not answered.
  std::optional<v1::SessionAnswer> ask(const v1::SessionRequest& request) {
    calls->receive(request, broker, executor.now);
    std::optional<v1::SessionAnswer> answered;
    while (const v1::SessionAnswer* answer = stream.take()) {
      if (answer->id() == request.id()) answered = *answer;
      writer->written(true);
    }
    return answered;
  }

  fuzz::FakeStream stream;
  core::Broker broker{policy()};
  PromptExecutor executor{broker};
  std::shared_ptr<SessionWriter> writer = std::make_shared<SessionWriter>(stream.stream(), stream.context());
  std::shared_ptr<SessionCalls> calls = std::make_shared<SessionCalls>(executor, writer, 1);
};

/// Requests that have no answer of their own.
bool is_told(const std::string& field) { return field == "open" || field == "cancel" || field == "goodbye"; }

TEST_F(StreamCalls, AreAllAnsweredByTheirHandler) {
  const auto* requests = v1::SessionRequest::descriptor()->FindOneofByName("request");
  ASSERT_NE(requests, nullptr);
  int asked = 0;
  for (int i = 0; i < requests->field_count(); ++i) {
    const auto* field = requests->field(i);
    if (is_told(field->name())) continue;
    v1::SessionRequest request;
    request.set_id(static_cast<std::uint64_t>(++asked) + 1);
    request.GetReflection()->MutableMessage(&request, field);
    const auto answer = ask(request);
    ASSERT_TRUE(answer) << field->name() << " is not answered";
    EXPECT_EQ(answer->failed().message().find("does not know"), std::string::npos)
        << field->name() << ": " << answer->failed().message();
    EXPECT_FALSE(stream.finished()) << field->name();
  }
  EXPECT_EQ(asked, requests->field_count() - 3);
}

TEST_F(StreamCalls, OfNoKindAreRefused) {
  v1::SessionRequest request;
  request.set_id(2);
  const auto answer = ask(request);
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->failed().message().find("does not know this request"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::rpc
