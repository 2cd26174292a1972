// Connections whose calls make gRPC hold too much are cut off.
#include "daemon/host/sockets/http2_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gpumem::host {
namespace {

using testing::HasSubstr;

constexpr std::uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kContinuation = 9;

std::string big_endian(std::size_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string frame(std::uint8_t kind, std::uint8_t flags, std::uint32_t stream,
                  const std::string& payload = {}) {
  return big_endian(payload.size(), 3) + static_cast<char>(kind) + static_cast<char>(flags) +
         big_endian(stream, 4) + payload;
}

std::string prefix(std::size_t length) { return std::string(1, '\0') + big_endian(length, 4); }

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

struct Connection {
  explicit Connection(std::shared_ptr<UserCalls> of) : guard(std::move(of)) {
    EXPECT_TRUE(say(std::string(24, 'p') + frame(kSettings, 0, 0)));
  }
  Result<void> say(const std::string& text) { return guard.from_client(bytes_of(text)); }
  void answer(const std::string& text) { guard.from_broker(bytes_of(text)); }
  Http2Guard guard;
};

struct Http2GuardTest : testing::Test {
  const std::shared_ptr<UserCalls> user = std::make_shared<UserCalls>();
  Connection one{user};
};

TEST_F(Http2GuardTest, UnderstandsFramesHoweverTheyAreCut) {
  const std::string text = frame(kHeaders, 4, 1, "headers") + frame(kData, 0, 1, prefix(100) + "begin");
  for (const char byte : text) ASSERT_TRUE(one.say(std::string(1, byte)));
  EXPECT_EQ(user->streams, 1U);
  EXPECT_EQ(user->unfinished_bytes, 5U);
  ASSERT_TRUE(one.say(frame(kData, 1, 1, std::string(95, 'x') + prefix(0) + prefix(7) + "next")));
  EXPECT_EQ(user->unfinished_bytes, 4U) << "the first two are whole";
}

struct GuardedEnds : Http2GuardTest, testing::WithParamInterface<int> {};

TEST_P(GuardedEnds, OfACallMakeRoom) {
  ASSERT_TRUE(one.say(frame(kHeaders, 4, 1) + frame(kData, 0, 1, prefix(100) + "begin")));
  switch (GetParam()) {
    case 0: ASSERT_TRUE(one.say(frame(kReset, 0, 1, "code"))); break;
    case 1: one.answer(frame(kReset, 0, 1, "code")); break;
    case 2: one.answer(frame(kHeaders, 5, 1, "status")); break;
    default: one.answer(frame(kHeaders, 4, 1) + frame(kData, 1, 1, "x"));
  }
  EXPECT_EQ(user->streams, 0U);
  EXPECT_EQ(user->unfinished_bytes, 0U);
}

INSTANTIATE_TEST_SUITE_P(ByEitherSide, GuardedEnds, testing::Range(0, 4));

TEST_F(Http2GuardTest, CutsOffWhoOpensTooManyCallsOnAConnection) {
  for (const bool acknowledged : {false, true}) {
    Connection another(user);
    if (acknowledged) {
      ASSERT_TRUE(another.say(frame(kSettings, 1, 0)));
    }
    Result<void> said;
    std::size_t opened = 0;
    for (std::uint32_t stream = 1; said; stream += 2, ++opened)
      said = another.say(frame(kHeaders, 4, stream));
    EXPECT_EQ(opened - 1, acknowledged ? Http2Guard::kMostStreams : Http2Guard::kMostEarlyStreams);
    EXPECT_EQ(said.error().code, Code::kResourceExhausted);
  }
  EXPECT_EQ(user->streams, 0U) << "a connection that is over has no calls";
}

TEST_F(Http2GuardTest, CutsOffTheUserWhoHasTooManyCallsInAll) {
  std::vector<std::unique_ptr<Connection>> all;
  std::size_t opened = 0;
  Result<void> said;
  while (said) {
    all.push_back(std::make_unique<Connection>(user));
    for (std::uint32_t stream = 1; said && stream < 2 * Http2Guard::kMostEarlyStreams; stream += 2) {
      said = all.back()->say(frame(kHeaders, 4, stream));
      if (said) ++opened;
    }
  }
  EXPECT_EQ(opened, Http2Guard::kMostStreamsOfUser);
  EXPECT_THAT(said.error().message, HasSubstr("this user has"));
  Connection other(std::make_shared<UserCalls>());
  EXPECT_TRUE(other.say(frame(kHeaders, 4, 1)));
}

struct TakenBack : Http2GuardTest, testing::WithParamInterface<bool> {};

TEST_P(TakenBack, CallsAreBoundedOverAllConnectionsOfTheUser) {
  std::size_t opened = 0;
  Result<void> said;
  while (said) {
    Connection another(user);
    for (std::uint32_t stream = 1; said && stream < 100; stream += 2) {
      said = another.say(frame(kHeaders, 4, stream) + frame(kData, 0, stream, prefix(0)));
      if (said) ++opened;
      if (said && GetParam()) said = another.say(frame(kReset, 0, stream, "code"));
    }
  }
  EXPECT_GE(opened, Http2Guard::kMostTakenBackOfUser);
  EXPECT_LE(opened, Http2Guard::kMostTakenBackOfUser + 50) << "of the last connection";
  EXPECT_THAT(said.error().message, HasSubstr("taken back"));
  user->counted_from -= UserCalls::kTakenBackTime;
  Connection later(user);
  EXPECT_TRUE(later.say(frame(kHeaders, 4, 1)));
}

TEST_F(Http2GuardTest, CountsNoCallsAsTakenBackThatBeganLongAgo) {
  for (std::size_t opened = 0; opened < Http2Guard::kMostTakenBackOfUser;) {
    Connection another(user);
    for (std::uint32_t stream = 1; stream < 100; stream += 2, ++opened)
      ASSERT_TRUE(another.say(frame(kHeaders, 4, stream)));
    user->counted_from -= UserCalls::kTakenBackTime;
  }
  EXPECT_EQ(user->taken_back, 0u);
}

INSTANTIATE_TEST_SUITE_P(ByResetOrEndOfTheConnection, TakenBack, testing::Bool());

TEST_F(Http2GuardTest, CutsOffTheUserWhoseMessagesAreNotSentToTheirEnd) {
  const std::string piece(Http2Guard::kMostFrame, 'x');
  Connection another(user);
  ASSERT_TRUE(another.say(frame(kHeaders, 4, 1) + frame(kData, 0, 1, prefix(1 << 30))));
  ASSERT_TRUE(one.say(frame(kHeaders, 4, 1) + frame(kData, 0, 1, prefix(1 << 30))));
  std::size_t sent = 0;
  while (another.say(frame(kData, 0, 1, piece)) && one.say(frame(kData, 0, 1, piece)))
    sent += 2 * piece.size();
  EXPECT_EQ(sent, Http2Guard::kMostUnfinishedOfUser);
}

TEST_F(Http2GuardTest, CutsOffWhoSendsHeadersWithoutEndOrFramesThatGrpcDoesNotTake) {
  ASSERT_TRUE(one.say(frame(kHeaders, 0, 1, std::string(16'000, 'h'))));
  ASSERT_TRUE(one.say(frame(kContinuation, 0, 1, std::string(16'000, 'h'))));
  EXPECT_FALSE(one.say(frame(kContinuation, 0, 1, std::string(16'000, 'h'))));
  Connection large(user), padded(user);
  EXPECT_FALSE(large.say(frame(kData, 0, 1, std::string(Http2Guard::kMostFrame + 1, 'x'))));
  EXPECT_FALSE(padded.say(frame(kData, 8, 1, "padding")));
}

}  // namespace
}  // namespace gpumem::host
