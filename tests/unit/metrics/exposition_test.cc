// The text that scrapes share.
#include "daemon/metrics/exposition.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"

namespace gpumem::metrics {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

Text ask(Exposition& exposition) {
  std::promise<Text> text;
  exposition.request([&](Text one) { text.set_value(std::move(one)); });
  return text.get_future().get();
}

TEST(Exposition, SharesOneTextAmongScrapesWhileItIsFresh) {
  std::atomic<int> made = 0;
  Exposition exposition([&] { return std::to_string(++made); }, hours(1));
  const Text first = ask(exposition);
  EXPECT_EQ(*first, "1");
  EXPECT_EQ(ask(exposition), first);
  EXPECT_EQ(made, 1);
}

TEST(Exposition, MakesTheTextAnewWhenItIsOld) {
  std::atomic<int> made = 0;
  Exposition exposition([&] { return std::to_string(++made); }, milliseconds(0));
  EXPECT_EQ(*ask(exposition), "1");
  EXPECT_EQ(*ask(exposition), "2");
}

TEST(Exposition, MakesNoMoreTextsThanAreTakenWhileSlowReadersHoldThem) {
  std::atomic<int> made = 0;
  Exposition exposition([&] { return std::to_string(++made); }, milliseconds(0));
  std::vector<Text> held;
  for (int i = 0; i < 100; ++i) held.push_back(ask(exposition));
  EXPECT_EQ(made, static_cast<int>(Exposition::kMostTexts));
  EXPECT_EQ(held.back(), held[Exposition::kMostTexts - 1]) << "the latest again";
  held.clear();
  EXPECT_GT(std::stoi(*ask(exposition)), static_cast<int>(Exposition::kMostTexts));
}

TEST(Exposition, GivesNoTextOnceItCannotBeMade) {
  Exposition exposition([]() -> std::optional<std::string> { return std::nullopt; });
  EXPECT_EQ(ask(exposition), nullptr);
}

TEST(Exposition, GivesNoTextWhereThereIsNoMemoryForItAndOneAfterwards) {
  bool failing = true;
  Exposition exposition([&]() -> std::optional<std::string> {
    if (std::exchange(failing, false)) throw std::bad_alloc();
    return "made";
  });
  EXPECT_EQ(ask(exposition), nullptr);
  EXPECT_EQ(*ask(exposition), "made");
}

TEST(Exposition, RefusesAtOnceWhereTooManyWait) {
  std::promise<void> begun, go_on;
  std::atomic<int> answered = 0, refused = 0;
  const auto count = [&](const Text& text) { ++(text ? answered : refused); };
  Exposition exposition(
      [&]() -> std::optional<std::string> {
        begun.set_value();
        go_on.get_future().wait();
        return "made";
      },
      hours(1));
  exposition.request(count);
  begun.get_future().wait();
  for (std::size_t i = 0; i < Exposition::kMostAsking; ++i) exposition.request(count);
  EXPECT_EQ(refused, 0);
  exposition.request(count);
  EXPECT_EQ(refused, 1);
  go_on.set_value();
  EXPECT_TRUE(test::eventually([&] { return answered == static_cast<int>(Exposition::kMostAsking) + 1; }));
  EXPECT_EQ(*ask(exposition), "made");
}

}  // namespace
}  // namespace gpumem::metrics
