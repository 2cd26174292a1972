#include "daemon/host/system/rate_limited_log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>

namespace gpumem::host {
namespace {

TEST(RateLimitedLog, SaysTenLinesASecondAndHowManyItLeftOut) {
  const auto before = spdlog::default_logger();
  std::ostringstream said;
  const auto logger =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said));
  logger->set_pattern("%v");
  spdlog::set_default_logger(logger);
  boost::asio::io_context loop;
  RateLimitedLog log(loop);
  for (int i = 0; i < 200; ++i) log.warn("a client breaks the protocol");
  const std::string at_once = said.str();
  loop.run();  // until the second is over
  spdlog::set_default_logger(before);
  EXPECT_EQ(std::count(at_once.begin(), at_once.end(), '\n'), RateLimitedLog::kPerSecond);
  EXPECT_EQ(said.str(), at_once + "190 more warnings in that second\n");
}

}  // namespace
}  // namespace gpumem::host
