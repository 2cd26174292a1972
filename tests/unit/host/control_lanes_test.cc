// Who gets a control connection when many have one.
#include "daemon/host/control_lanes.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace gpumem::host {
namespace {

struct NoHandler final : LaneHandler {
  void frame(const std::shared_ptr<Lane>&, std::string_view) override {}
  void hello(const std::shared_ptr<Lane>&, const v1::Hello&) override {}
  void accepted(Lane&, GrantId) override {}
  void spent(Lane&, std::uint32_t) override {}
  void complain(const std::string&) override {}
  void closed(const std::shared_ptr<Lane>&, bool) override {}
  void process_exited(const std::shared_ptr<Lane>&) override {}
};

struct ControlLanesTest : testing::Test {
  ~ControlLanesTest() override {
    for (const auto& lane : lanes) lane->forget();
  }
  Result<std::string> admit(std::uint32_t uid, bool admin = false) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const UniqueFd other(ends[1]);
    Connection connection{UniqueFd(ends[0]), {}, admin};
    connection.peer.peer.uid = uid;
    lanes.push_back(Lane::create(loop, std::move(connection), handler, disposal, unread).value());
    return controls.admit(lanes.back());
  }

  NoHandler handler;
  SocketDisposal disposal{false};
  boost::asio::io_context loop;
  UnreadDescriptors unread{loop, 100, disposal};
  std::vector<std::shared_ptr<Lane>> lanes;
  ControlLanes controls;
};

TEST_F(ControlLanesTest, AreLimitedForEachUser) {
  for (std::size_t i = 0; i < ControlLanes::kMostOfAUser; ++i) EXPECT_TRUE(admit(10));
  EXPECT_EQ(admit(10).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(admit(11));
  controls.remove(*lanes.front());
  EXPECT_TRUE(admit(10));
}

TEST_F(ControlLanesTest, OfManyUsersLeaveRoomForAdministrators) {
  std::uint32_t uid = 100;
  for (std::size_t i = 0; i < ControlLanes::kMost; ++i) EXPECT_TRUE(admit(uid++));
  EXPECT_FALSE(admit(uid));
  EXPECT_TRUE(admit(0, true));
  EXPECT_TRUE(admit(1000, true)) << "a member of the admin group";
}

}  // namespace
}  // namespace gpumem::host
