// Messages to the service manager while the core answers, and while it does not.
#include "daemon/host/state/service_manager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace gpumem::host {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;

TEST(Watchdog, ReportsEachAnswerOfTheCore) {
  std::atomic<int> asked = 0;
  std::promise<void> third;
  Watchdog watchdog(
      microseconds(1), [&](auto answer) { answer("line " + std::to_string(++asked)); },
      [&](const std::string& status) {
        if (status == "line 3") third.set_value();
      });
  third.get_future().wait();
}

TEST(Watchdog, WaitsForItsIntervalBetweenReports) {
  int reports = 0;
  std::promise<void> first;
  {
    Watchdog watchdog(
        hours(1), [](auto answer) { answer("well"); },
        [&](const std::string&) {
          if (++reports == 1) first.set_value();
        });
    first.get_future().wait();
  }
  EXPECT_EQ(reports, 1) << "and ends without waiting for the next";
}

TEST(Watchdog, ReportsNothingWhileTheCoreIsStuck) {
  std::function<void(std::string)> late;
  std::promise<void> asked;
  int questions = 0, reports = 0;
  {
    Watchdog watchdog(
        microseconds(1),
        [&](auto answer) {
          ++questions;
          late = std::move(answer);
          asked.set_value();
        },
        [&](const std::string&) { ++reports; });
    asked.get_future().wait();
  }
  EXPECT_EQ(questions, 1) << "asked once, not again while it waits";
  EXPECT_EQ(reports, 0);
  late("too late");  // harms nobody
}

TEST(Watchdog, GoesOnOnceTheCoreAnswersAgain) {
  std::promise<std::function<void(std::string)>> stuck;
  std::promise<std::string> heard;
  std::atomic<int> questions = 0;
  Watchdog watchdog(
      hours(1),
      [&](auto answer) {
        if (++questions == 1) stuck.set_value(std::move(answer));
      },
      [&](const std::string& status) { heard.set_value(status); });
  stuck.get_future().get()("it took a while");
  EXPECT_EQ(heard.get_future().get(), "it took a while");
}

}  // namespace
}  // namespace gpumem::host
