// Many processes ask for a region that nobody has published yet: one of them is to publish it.
#include "tests/integration/regions/region_fixture.h"
#include "tests/support/lanes/frame_lane.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

struct RegionReserve : RegionTest {
  static constexpr int kLong = 120'000;

  static Json command(Json more = Json::object()) {
    Json command{{"do", "map_or_reserve"}, {"region", "weights"}, {"wait_ms", kLong}};
    command.update(more);
    return command;
  }
  static Json reserve(ClientProcess& client, Json more = Json::object()) {
    return client.ask(command(std::move(more)));
  }
  static Json release(ClientProcess& client, const Json& reserved) {
    return client.ask({{"do", "release_reservation"}, {"reservation", reserved.at("reservation")}});
  }
  static bool is_first(const Json& answer) { return succeeded(answer) && answer.contains("reservation"); }
  // The waiters are many, of whom one gets an answer: which one.
  std::size_t await_one(const std::vector<std::unique_ptr<ClientProcess>>& clients) {
    std::size_t found = clients.size();
    EXPECT_TRUE(eventually([&] {
      for (std::size_t i = 0; i < clients.size(); ++i)
        if (clients[i] && clients[i]->has_answer(std::chrono::milliseconds(0))) found = i;
      return found != clients.size();
    }));
    return found;
  }
};

TEST_F(RegionReserve, IsFulfilledByThePublication) {
  auto writer = client_with(mebibytes(2));
  auto reader = client(), late = client();
  ASSERT_TRUE(is_first(reserve(*writer)));
  reader->tell(command());
  EXPECT_TRUE(failed_with(reserve(*late, {{"wait_ms", 0}}), "NOT_FOUND"));
  EXPECT_TRUE(failed_with(reserve(*late, {{"wait_ms", 1}}), "DEADLINE_EXCEEDED"));
  EXPECT_TRUE(succeeded(writer->write("a", 7)));
  const Json published = publish(*writer);
  const Json mapped = reader->answer();
  ASSERT_TRUE(succeeded(mapped));
  EXPECT_EQ(mapped["version"], published["version"]);
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_EQ(reserve(*late)["version"], published["version"]);
  EXPECT_TRUE(succeeded(check(*late, 7)));
  for (ClientProcess* one : {reader.get(), late.get(), writer.get()}) EXPECT_EQ(one->leave(), 0);
  expect_rest();
}

TEST_F(RegionReserve, KilledHolderPassesTheReservationToOneWaiter) {
  auto holder = client();
  ASSERT_TRUE(is_first(reserve(*holder)));
  std::vector<std::unique_ptr<ClientProcess>> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.push_back(client());
    waiters.back()->tell(command());
  }
  while (waiters.size() > 1) {
    holder->kill();
    const std::size_t next = await_one(waiters);
    ASSERT_LT(next, waiters.size());
    ASSERT_TRUE(is_first(waiters[next]->answer()));
    holder = std::move(waiters[next]);
    waiters.erase(waiters.begin() + static_cast<std::ptrdiff_t>(next));
    for (const auto& one : waiters)
      EXPECT_FALSE(one->has_answer(std::chrono::milliseconds(0))) << "one alone is first";
  }
  EXPECT_TRUE(succeeded(holder->open("a")));
  EXPECT_TRUE(succeeded(holder->grow("a", mebibytes(2))));
  EXPECT_TRUE(succeeded(publish(*holder)));
  EXPECT_TRUE(waiters[0]->answer().contains("version"));
  EXPECT_EQ(waiters[0]->leave(), 0);
  expect_rest_after(*holder);
}

// Killed with its memory granted, and after the publication: before it another one is first, after it the
// region has ended with its memory, and another one is first, too.
TEST_F(RegionReserve, HolderKilledBeforeOrAfterPublishingPassesTheReservationOn) {
  for (const bool published : {false, true}) {
    auto holder = client_with(mebibytes(2));
    ASSERT_TRUE(is_first(reserve(*holder)));
    if (published) {
      ASSERT_TRUE(succeeded(publish(*holder)));
    }
    holder->kill();
    EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 0; }));
    auto next = client(), last = client();
    const Json reserved = reserve(*next);
    ASSERT_TRUE(is_first(reserved));
    last->tell(command());
    EXPECT_TRUE(succeeded(release(*next, reserved)));
    EXPECT_TRUE(is_first(last->answer()));
    EXPECT_TRUE(failed_with(release(*next, reserved), "NOT_FOUND"));
    EXPECT_EQ(last->leave(), 0);
    EXPECT_EQ(next->leave(), 0);
  }
  expect_rest();
}

// A restart ends it. Its holder publishes all the same; of the others, who ask again, one is first.
TEST_F(RegionReserve, EndsWithTheBroker) {
  auto holder = client_with(mebibytes(2));
  const Json reserved = reserve(*holder);
  ASSERT_TRUE(is_first(reserved));
  auto waiter = client();
  waiter->tell(command());
  ASSERT_EQ(broker_.upgrade().status, 0);
  ASSERT_TRUE(is_first(waiter->answer()));
  auto last = client();
  EXPECT_TRUE(failed_with(reserve(*last, {{"wait_ms", 0}}), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(release(*holder, reserved))) << "an earlier broker's is nobody's";
  EXPECT_TRUE(failed_with(reserve(*last, {{"wait_ms", 0}}), "NOT_FOUND")) << "the waiter's is as it was";
  EXPECT_TRUE(succeeded(publish(*holder)));
  EXPECT_TRUE(reserve(*last).contains("version"));
}

// The broker gives it to somebody else, at once.
TEST_F(RegionReserve, IsGivenBackByAClientThatLeavesBeforeItsAnswer) {
  FrameLane holder(broker_.folder());
  holder.greet();
  const lane::MapOrReserve body{lane::RegionName::of("weights"), 0, ~std::uint64_t{0}};
  auto answer = holder.ask(body);
  ASSERT_TRUE(answer.is(lane::Kind::kNameReserved));
  FrameLane waiter(broker_.folder());
  waiter.greet();
  const std::uint64_t number = waiter.send(body);
  EXPECT_TRUE(waiter.receive().is(lane::Kind::kWaiting));
  waiter.send(lane::Cancel{number});
  const auto cancelled = waiter.receive();
  ASSERT_TRUE(cancelled.is(lane::Kind::kFailed));
  EXPECT_EQ(cancelled.as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kCancelled));
  EXPECT_TRUE(holder.ask(lane::ReleaseReservation{answer.as<lane::NameReserved>().reservation})
                  .is(lane::Kind::kDone));
  EXPECT_TRUE(holder.ask(body).is(lane::Kind::kNameReserved)) << "nobody waits any more";
}

TEST_F(RegionReserve, IsForLanesAlone) {
  SessionStream stream(broker_.folder());
  stream.open();
  v1::SessionRequest request;
  request.mutable_map_or_reserve()->set_name("weights");
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::FAILED_PRECONDITION);
  request.mutable_release_reservation()->set_reservation(1);
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace gpumem::test
