#include "shm/device_page.h"

#include <gtest/gtest.h>

#include <cstring>

#include "shm/seqlock.h"

namespace gpumem {
namespace {

struct DevicePageTest : testing::Test {
  DevicePageTest() { initialize(*page); }
  template <class Word>
  Word word_at(std::size_t offset) const {
    Word word{};
    std::memcpy(&word, reinterpret_cast<const char*>(page.get()) + offset, sizeof word);
    return word;
  }
  std::unique_ptr<DevicePage> page = std::make_unique<DevicePage>();
};

TEST_F(DevicePageTest, LaysOutWordsWhereOtherLanguagesLookForThem) {
  page->listing.idle = 1;
  page->listing.broker = 2;
  page->listing.pid_namespace = 3;
  page->listing.process_count = 4;
  page->listing.processes[1019] = {5, 6};
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(page.get()), 8), "GMEMDEV1");
  EXPECT_EQ(word_at<std::uint32_t>(8), 1U);
  EXPECT_EQ(word_at<std::uint32_t>(12), 16384U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(word_at<std::uint64_t>(24 + 8 * i), i + 1);
  EXPECT_EQ(word_at<std::uint64_t>(56 + 16 * 1019), 5U);
  EXPECT_EQ(word_at<std::uint64_t>(56 + 16 * 1019 + 8), 6U);
}

TEST_F(DevicePageTest, IsReadAsItWasWritten) {
  DeviceListing listing{.idle = 7, .broker = 8, .pid_namespace = 9, .process_count = 1, .processes = {}};
  listing.processes[0] = {10, 11};
  seqlock_write(page->sequence, page->listing, listing);
  const auto read = read_listing(*page);
  ASSERT_TRUE(read);
  EXPECT_EQ((*read)->idle, 7U);
  EXPECT_EQ((*read)->process_count, 1U);
  EXPECT_EQ((*read)->processes[0].used, 11U);
}

TEST_F(DevicePageTest, IsNotReadIfItCannotBeTrue) {
  page->listing.process_count = kMaxListedProcesses + 1;
  EXPECT_EQ(read_listing(*page).error().code, Code::kInternal);
  page->sequence = 1;
  EXPECT_EQ(read_listing(*page).error().code, Code::kUnavailable);
  page->header.version = 2;
  EXPECT_EQ(read_listing(*page).error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace gpumem
