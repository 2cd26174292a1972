// The two pages of a session: fixed in size, and the broker's own is nobody else's to write.
#include "daemon/host/lanes/shared_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace gpumem::host {
namespace {

void* map(const UniqueFd& file, int protection) {
  return ::mmap(nullptr, kSharedPageBytes, protection, MAP_SHARED, file.get(), 0);
}

struct SharedPagesTest : testing::Test {
  SharedPages pages = std::move(*SharedPages::create());
  std::array<UniqueFd, 2> files = pages.take_descriptors();
  const UniqueFd& broker = files[0];
  const UniqueFd& client = files[1];
};

TEST_F(SharedPagesTest, AreOnePageEach) {
  for (const UniqueFd& file : files) {
    struct stat found {};
    ASSERT_EQ(::fstat(file.get(), &found), 0);
    EXPECT_EQ(found.st_size, static_cast<off_t>(kSharedPageBytes));
  }
}

TEST_F(SharedPagesTest, OfTheBrokerShowsPublishedFigures) {
  void* const mapped = map(broker, PROT_READ);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto& page = *static_cast<const BrokerPage*>(mapped);
  EXPECT_TRUE(validate(page));
  BrokerFigures figures{};
  figures.session = 12;
  figures.device_count = 1;
  figures.devices[0].limit = 34;
  pages.publish(figures);
  const auto read = read_figures(page);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->session, 12U);
  EXPECT_EQ(read->devices[0].limit, 34U);
  ::munmap(mapped, kSharedPageBytes);
}

TEST_F(SharedPagesTest, OfTheBrokerCannotBeWrittenByAClient) {
  EXPECT_EQ(map(broker, PROT_READ | PROT_WRITE), MAP_FAILED);
  EXPECT_EQ(map(broker, PROT_WRITE), MAP_FAILED);
  void* const mapped = map(broker, PROT_READ);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(::mprotect(mapped, kSharedPageBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_LT(::pwrite(broker.get(), "x", 1, 0), 0);
  ::munmap(mapped, kSharedPageBytes);
}

TEST_F(SharedPagesTest, CannotBeResizedNorHaveTheirSealsChanged) {
  for (const UniqueFd& file : files) {
    EXPECT_NE(::ftruncate(file.get(), 0), 0);
    EXPECT_NE(::ftruncate(file.get(), 1 << 20), 0);
    EXPECT_NE(::fallocate(file.get(), 0, 0, 1 << 20), 0);
    EXPECT_NE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
}

TEST_F(SharedPagesTest, OfTheClientIsReadByTheBroker) {
  void* const mapped = map(client, PROT_READ | PROT_WRITE);
  ASSERT_NE(mapped, MAP_FAILED);
  write_figures(*static_cast<ClientPage*>(mapped), 0, {8, 6, 2, 4});
  const auto read = read_figures(pages.client_page(), 0, 6);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->in_use, 2U);
  EXPECT_FALSE(read_figures(pages.client_page(), 0, 5).has_value()) << "more than it is charged for";
  ::munmap(mapped, kSharedPageBytes);
}

TEST_F(SharedPagesTest, StayWhereTheyAreWhenTheirOwnerMoves) {
  SharedPages moved = std::move(pages);
  moved.publish({});
  EXPECT_EQ(moved.client_page().header.magic, kClientPageMagic);
}

}  // namespace
}  // namespace gpumem::host
