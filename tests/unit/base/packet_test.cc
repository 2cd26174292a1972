#include "base/packet.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>

namespace gpumem {
namespace {

class Packets : public testing::Test {
 protected:
  Packets() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    here = UniqueFd(ends[0]);
    there = UniqueFd(ends[1]);
  }

  static std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  Result<void> send_many(std::size_t count) {
    const UniqueFd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return send_packet(here.get(), "x", std::vector<int>(count, one.get()));
  }

  UniqueFd here;
  UniqueFd there;
};

TEST_F(Packets, ArriveWholeAndInOrder) {
  ASSERT_TRUE(send_packet(here.get(), "first"));
  ASSERT_TRUE(send_packet(here.get(), std::string("\0second", 7)));
  EXPECT_EQ(receive_packet(there.get(), 64, 0)->bytes, "first");
  EXPECT_EQ(receive_packet(there.get(), 64, 0)->bytes, std::string("\0second", 7));
}

TEST_F(Packets, CarryDescriptorsThatCloseOnExec) {
  const UniqueFd sent(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::array<int, 2> twice{sent.get(), sent.get()};
  ASSERT_TRUE(send_packet(here.get(), "two", twice));
  const auto packet = receive_packet(there.get(), 64, 2);
  ASSERT_TRUE(packet);
  ASSERT_EQ(packet->descriptors.size(), 2u);
  struct stat a {};
  struct stat b {};
  ASSERT_EQ(::fstat(sent.get(), &a), 0);
  ASSERT_EQ(::fstat(packet->descriptors[1].get(), &b), 0);
  EXPECT_EQ(a.st_rdev, b.st_rdev);
  EXPECT_EQ(::fcntl(packet->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(Packets, LongerThanAllowedAreRefusedAndLeakNothing) {
  ASSERT_TRUE(send_many(3));
  ASSERT_TRUE(send_packet(here.get(), "next"));
  const auto before = open_descriptors();
  const auto cut = receive_packet(there.get(), 0, 3);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::kInvalidArgument);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(receive_packet(there.get(), 64, 0)->bytes, "next");
}

TEST_F(Packets, WithTooManyDescriptorsAreRefusedAndLeakNothing) {
  ASSERT_TRUE(send_many(128));
  const auto before = open_descriptors();
  const auto packet = receive_packet(there.get(), 64, 127);
  ASSERT_FALSE(packet);
  EXPECT_EQ(packet.error().code, Code::kInvalidArgument);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Packets, CarryAsManyDescriptorsAsTheKernelAllows) {
  ASSERT_TRUE(send_many(253));
  EXPECT_EQ(receive_packet(there.get(), 64, 253)->descriptors.size(), 253u);
  EXPECT_EQ(send_many(254).error().code, Code::kInvalidArgument);
}

TEST_F(Packets, AreEmptyOnceThePeerHasClosed) {
  ASSERT_TRUE(send_packet(there.get(), "last"));
  there.reset();
  EXPECT_EQ(receive_packet(here.get(), 64, 0)->bytes, "last");
  EXPECT_EQ(receive_packet(here.get(), 64, 0)->bytes, "");
  EXPECT_EQ(send_packet(here.get(), "x").error().code, Code::kUnavailable);
}

TEST_F(Packets, ThatAreNotThereYetAreADeadlineExceeded) {
  EXPECT_EQ(receive_packet(here.get(), 64, 0).error().code, Code::kDeadlineExceeded);
}

TEST_F(Packets, DoNotBlockOnAFullSocket) {
  Result<void> sent;
  int count = 0;
  while ((sent = send_packet(here.get(), std::string(1024, 'x')))) ++count;
  EXPECT_GT(count, 0);
  EXPECT_EQ(sent.error().code, Code::kDeadlineExceeded);
  ASSERT_TRUE(receive_packet(there.get(), 1024, 0));
}

TEST_F(Packets, TooLongForTheSocketAreRefused) {
  EXPECT_EQ(send_packet(here.get(), std::string(64 << 20, 'x')).error().code, Code::kInvalidArgument);
}

TEST_F(Packets, OfAClosedDescriptorAreAnError) {
  EXPECT_FALSE(send_packet(-1, "x"));
  EXPECT_FALSE(receive_packet(-1, 1, 0));
  const std::array<int, 1> closed{-1};
  EXPECT_FALSE(send_packet(here.get(), "x", closed));
}

}  // namespace
}  // namespace gpumem
