// A client cannot delay the broker by its end of the doorbell.
#include "daemon/host/lanes/shared_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>

namespace gpumem::host {
namespace {

bool is_readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0;
}

struct DoorbellTest : testing::Test {
  Doorbell doorbell = std::move(*Doorbell::create());
  UniqueFd end = doorbell.take_descriptor();
};

TEST_F(DoorbellTest, IsHeardUntilItIsRead) {
  EXPECT_FALSE(is_readable(end.get()));
  doorbell.ring();
  EXPECT_TRUE(is_readable(end.get()));
  std::uint64_t rings = 0;
  EXPECT_EQ(::read(end.get(), &rings, sizeof rings), static_cast<ssize_t>(sizeof rings));
  EXPECT_EQ(rings, 1U);
  EXPECT_FALSE(is_readable(end.get()));
}

TEST_F(DoorbellTest, DoesNotBlockWhereNobodyReadsAndTheClientHasMadeItsEndBlocking) {
  ASSERT_EQ(::fcntl(end.get(), F_SETFL, 0), 0);
  for (int i = 0; i < 100'000; ++i) doorbell.ring();
  EXPECT_TRUE(is_readable(end.get()));
}

TEST_F(DoorbellTest, CannotBeRungByTheClient) { EXPECT_LT(::write(end.get(), "12345678", 8), 0); }

TEST_F(DoorbellTest, OfAClientThatIsGoneRingsInVain) {
  std::signal(SIGPIPE, SIG_IGN);  // as gpumemd does
  end.reset();
  doorbell.ring();
  std::signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace gpumem::host
