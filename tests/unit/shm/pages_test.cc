#include "shm/pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>

#include "shm/seqlock.h"

namespace gpumem {
namespace {

template <class Page>
std::string_view bytes_of(const Page& page) {
  return {reinterpret_cast<const char*>(&page), sizeof page};
}

template <class Word, class Page>
Word word_at(const Page& page, std::size_t offset) {
  Word word{};
  std::memcpy(&word, bytes_of(page).data() + offset, sizeof word);
  return word;
}

TEST(BrokerPage, BeginsWithItsMagicVersionAndSize) {
  const auto page = std::make_unique<BrokerPage>();
  initialize(*page);
  EXPECT_EQ(bytes_of(*page).substr(0, 8), "GMEMBRK1");
  EXPECT_EQ(word_at<std::uint32_t>(*page, 8), 2u);
  EXPECT_EQ(word_at<std::uint32_t>(*page, 12), 4096u);
  EXPECT_EQ(bytes_of(*page).find_first_not_of('\0', 16), std::string_view::npos);
  EXPECT_TRUE(validate(*page));
}

TEST(ClientPage, BeginsWithItsMagicVersionAndSize) {
  const auto page = std::make_unique<ClientPage>();
  initialize(*page);
  EXPECT_EQ(bytes_of(*page).substr(0, 8), "GMEMCLN1");
  EXPECT_EQ(word_at<std::uint32_t>(*page, 8), 2u);
  EXPECT_EQ(word_at<std::uint32_t>(*page, 12), 4096u);
  EXPECT_EQ(bytes_of(*page).find_first_not_of('\0', 16), std::string_view::npos);
}

TEST(BrokerPage, LaysOutWordsWhereOtherLanguagesLookForThem) {
  const auto page = std::make_unique<BrokerPage>();
  page->sequence = 1;
  page->figures.session = 2;
  page->figures.generation = 3;
  page->figures.device_count = 4;
  page->figures.devices[1].pool = 5;
  page->figures.devices[31].pressure = 6;
  page->figures.devices[31].pressure_deadline = 7;
  EXPECT_EQ(word_at<std::uint64_t>(*page, 16), 1u);
  EXPECT_EQ(word_at<std::uint64_t>(*page, 24), 2u);
  EXPECT_EQ(word_at<std::uint64_t>(*page, 32), 3u);
  EXPECT_EQ(word_at<std::uint64_t>(*page, 40), 4u);
  EXPECT_EQ(word_at<std::uint64_t>(*page, 48 + 88), 5u);
  EXPECT_EQ(word_at<std::uint64_t>(*page, 48 + 31 * 88 + 48), 6u);
  EXPECT_EQ(word_at<std::uint64_t>(*page, 48 + 31 * 88 + 56), 7u);
}

TEST(BrokerPage, OfAnotherKindVersionOrSizeIsRefused) {
  const auto page = std::make_unique<BrokerPage>();
  const auto refused = [&] {
    const auto answer = validate(*page);
    return !answer && answer.error().code == Code::kFailedPrecondition;
  };
  EXPECT_TRUE(refused());
  initialize(*page);
  page->header.magic = kClientPageMagic;
  EXPECT_TRUE(refused());
  initialize(*page);
  for (const std::uint32_t other : {kPageVersion - 1, kPageVersion + 1}) {
    page->header.version = other;
    EXPECT_TRUE(refused());
  }
  initialize(*page);
  page->header.size = 8192;
  EXPECT_TRUE(refused());
}

TEST(BrokerPage, WithImpossibleFiguresIsAnError) {
  const auto page = std::make_unique<BrokerPage>();
  initialize(*page);
  EXPECT_TRUE(read_figures(*page));
  page->figures.device_count = kMaxDevices + 1;
  EXPECT_EQ(read_figures(*page).error().code, Code::kInternal);
}

TEST(BrokerPage, WhoseWriterDiedHalfWayIsAnErrorAndNoHang) {
  const auto page = std::make_unique<BrokerPage>();
  initialize(*page);
  page->sequence = 41;
  EXPECT_EQ(read_figures(*page).error().code, Code::kUnavailable);
}

class HostileClientPage : public testing::Test {
 protected:
  HostileClientPage() { initialize(*page); }
  bool believed(ClientFigures figures, std::uint64_t charged) {
    write_figures(*page, 0, figures);
    return read_figures(*page, 0, charged).has_value();
  }
  std::unique_ptr<ClientPage> page = std::make_unique<ClientPage>();
};

TEST_F(HostileClientPage, IsBelievedOnlyWhereItCanBeTrue) {
  EXPECT_TRUE(believed({.reserved = 8, .committed = 4, .in_use = 2, .peak = 3}, 4));
  EXPECT_TRUE(believed({}, 0));
  EXPECT_FALSE(believed({.reserved = 8, .committed = 4, .in_use = 2, .peak = 3}, 3))
      << "more than is charged";
  EXPECT_FALSE(believed({.reserved = 3, .committed = 4, .in_use = 2, .peak = 3}, 4))
      << "more than is reserved";
  EXPECT_FALSE(believed({.reserved = 8, .committed = 1, .in_use = 2, .peak = 3}, 4))
      << "more in use than committed";
  EXPECT_FALSE(believed({.reserved = 8, .committed = 4, .in_use = 2, .peak = 1}, 4))
      << "more in use than the peak";
}

TEST_F(HostileClientPage, WithTheLargestNumbersIsNotBelieved) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_FALSE(
      believed({.reserved = kMost, .committed = kMost, .in_use = kMost, .peak = kMost}, 80ULL << 30));
  EXPECT_FALSE(believed({.reserved = 0, .committed = 0, .in_use = kMost, .peak = kMost}, 0));
}

TEST_F(HostileClientPage, HasNoFiguresPastItsLastDevice) {
  EXPECT_TRUE(read_figures(*page, kMaxDevices - 1, 0));
  EXPECT_FALSE(read_figures(*page, kMaxDevices, 0));
  EXPECT_FALSE(read_figures(*page, ~std::size_t{0}, 0));
}

}  // namespace
}  // namespace gpumem
