// A session may claim after a restart of the broker: leases that it was given, and has not begun to return.
#include "client/lane/lane_resumption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpumem::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

MATCHER_P2(IsThing, kind, id, "") { return arg.kind == kind && arg.id == static_cast<std::uint64_t>(id); }

struct SessionClaimed : testing::Test {
  SessionHoldings claim;

  template <class Body>
  void receive(const Body& body) {
    const lane::Outgoing frame(body, 1);
    claim.note_received(*lane::parse(frame.bytes()));
  }
  template <class Body>
  void send(const Body& body) {
    claim.note_sent(lane::Outgoing(body, 1).bytes());
  }
  void grant(std::vector<std::uint64_t> leases) {
    lane::Granted body{};
    for (const std::uint64_t lease : leases) body.leases[body.count++] = {lease, 1, 4};
    receive(body);
  }
  void give_back(std::vector<std::uint64_t> leases) {
    lane::Return body{};
    for (const std::uint64_t lease : leases) body.leases[body.count++] = lease;
    send(body);
  }
  std::vector<lane::ClaimedThing> things() const {
    std::vector<lane::ClaimedThing> things;
    for (const lane::Resume& frame : claim.frames(7))
      things.insert(things.end(), frame.things.begin(),
                    frame.things.begin() + static_cast<std::ptrdiff_t>(frame.count));
    return things;
  }
};

TEST_F(SessionClaimed, HasWhatWasGivenInOrder) {
  grant({9, 3});
  receive(lane::SliceOpened{4, 0, 0});
  lane::Imported imported{};
  imported.import = 5;
  receive(imported);
  lane::RegionMapped mapped{};
  mapped.import = 6;
  receive(mapped);
  EXPECT_THAT(things(), ElementsAre(IsThing(lane::Claimed::kSlice, 4), IsThing(lane::Claimed::kLease, 3),
                                    IsThing(lane::Claimed::kLease, 9), IsThing(lane::Claimed::kImport, 5),
                                    IsThing(lane::Claimed::kImport, 6)));
}

TEST_F(SessionClaimed, LacksWhatWasBegunToReturn) {
  grant({3, 9});
  receive(lane::SliceOpened{4, 0, 0});
  give_back({3});
  EXPECT_THAT(things(), ElementsAre(IsThing(lane::Claimed::kSlice, 4), IsThing(lane::Claimed::kLease, 9)));
  give_back({9, 77});
  send(lane::CloseSlice{4});
  EXPECT_THAT(things(), IsEmpty());
}

TEST_F(SessionClaimed, OfNothingIsOneFrame) {
  const auto frames = claim.frames(7);
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].session, 7U);
  EXPECT_EQ(frames[0].count + frames[0].missing, 0U);
  EXPECT_EQ(frames[0].newest, lane::kVersion);
}

TEST_F(SessionClaimed, OfMuchIsSeveralFramesThatCountDown) {
  for (std::uint64_t first = 1; first < 601; first += 100) {
    std::vector<std::uint64_t> leases;
    for (std::uint64_t i = 0; i < 100; ++i) leases.push_back(first + i);
    grant(leases);
  }
  std::vector<std::uint64_t> missing;
  for (const lane::Resume& frame : claim.frames(7)) missing.push_back(frame.missing);
  EXPECT_THAT(missing, ElementsAre(350U, 100U, 0U));
  EXPECT_EQ(things().size(), 600U);
}

}  // namespace
}  // namespace gpumem::client
