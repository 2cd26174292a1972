#include "base/system/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace gpumem {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }
UniqueFd some_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(UniqueFd, ClosesItsDescriptorAtTheEnd) {
  int number = -1;
  {
    const UniqueFd fd = some_descriptor();
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, OwnsNothingAfterMoveAndRelease) {
  UniqueFd first = some_descriptor();
  const int number = first.get();
  UniqueFd second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT(*-use-after-move)
  EXPECT_EQ(second.release(), number);
  EXPECT_FALSE(second.valid());
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(UniqueFd, ClosesTheOldDescriptorOnAssignment) {
  UniqueFd first = some_descriptor();
  const int old = first.get();
  UniqueFd second = some_descriptor();
  const int kept = second.get();
  first = std::move(second);
  EXPECT_FALSE(is_open(old));
  EXPECT_EQ(first.get(), kept);
}

TEST(UniqueFd, SurvivesAssignmentToItself) {
  UniqueFd fd = some_descriptor();
  UniqueFd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(is_open(fd.get()));
}

}  // namespace
}  // namespace gpumem
