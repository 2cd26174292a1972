#include "daemon/host/system/rate_limited_log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace gpumem::host {
namespace {

/// Warns of `texts` in this order. Returns the lines at once, and the lines until the second is over.
std::pair<std::string, std::string> said_of(const std::vector<std::string>& texts) {
  const auto before = spdlog::default_logger();
  std::ostringstream said;
  const auto logger =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said));
  logger->set_pattern("%v");
  spdlog::set_default_logger(logger);
  boost::asio::io_context loop;
  RateLimitedLog log(loop);
  for (const std::string& text : texts) log.warn(text);
  std::string at_once = said.str();
  loop.run();  // until the second is over
  spdlog::set_default_logger(before);
  return {std::move(at_once), said.str()};
}

TEST(RateLimitedLog, SaysTenLinesASecondAndHowManyItLeftOut) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back("client " + std::to_string(i) + " breaks the protocol");
  const auto [at_once, all] = said_of(texts);
  EXPECT_EQ(std::count(at_once.begin(), at_once.end(), '\n'), RateLimitedLog::kPerSecond);
  EXPECT_EQ(all, at_once + "190 more warnings in that second\n");
}

// A client that is refused asks again.
TEST(RateLimitedLog, SaysTheSameLineOnceInARow) {
  const auto [at_once, all] = said_of({"refused", "refused", "refused", "another", "refused"});
  EXPECT_EQ(at_once, "refused\nanother\nrefused\n");
  EXPECT_EQ(all, at_once + "2 more warnings in that second\n");
}

}  // namespace
}  // namespace gpumem::host
