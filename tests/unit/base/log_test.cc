#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include <nlohmann/json.hpp>

namespace gpumem {
namespace {

std::string logged(LogFormat format, std::string_view level, std::string_view message) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(start_log(format, level));
  spdlog::info("{}", message);
  EXPECT_TRUE(flush_log(std::chrono::seconds(20)));
  return testing::internal::GetCapturedStderr();
}

TEST(JsonLog, IsOneObjectALine) {
  const std::string line = logged(LogFormat::kJson, "info", "pool ready");
  ASSERT_TRUE(line.ends_with('\n'));
  const auto object = nlohmann::json::parse(line);
  EXPECT_EQ(object["level"], "info");
  EXPECT_EQ(object["pid"], ::getpid());
  EXPECT_EQ(object["message"], "pool ready");
  EXPECT_THAT(object["time"].get<std::string>(),
              testing::MatchesRegex(R"([0-9-]+T[0-9:]+\.[0-9][0-9][0-9][+-][0-9][0-9]:[0-9][0-9])"));
}

TEST(JsonLog, KeepsHostileWordsInsideTheMessage) {
  const std::string hostile = "\",\"level\":\"off\"}\n\\ \t\x01 %v {} \x7f \xc3\xa9";
  const std::string line = logged(LogFormat::kJson, "info", hostile);
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  const auto object = nlohmann::json::parse(line);
  EXPECT_EQ(object["message"], hostile);
  EXPECT_EQ(object["level"], "info");
}

TEST(JsonLog, ReplacesWhatIsNotUtf8) {
  for (const auto* bytes : {"\xff", "\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    const auto object =
        nlohmann::json::parse(logged(LogFormat::kJson, "info", std::string("a") + bytes + "z"));
    const auto message = object["message"].get<std::string>();
    EXPECT_TRUE(message.starts_with("a\xef\xbf\xbd") && message.ends_with("z")) << message;
  }
  const std::string good = "\xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf";
  EXPECT_EQ(nlohmann::json::parse(logged(LogFormat::kJson, "info", good))["message"], good);
}

TEST(Log, LeavesOutWhatIsBelowItsLevel) {
  EXPECT_EQ(logged(LogFormat::kText, "warning", "quiet"), "");
  EXPECT_EQ(logged(LogFormat::kText, "off", "quiet"), "");
  EXPECT_THAT(logged(LogFormat::kText, "debug", "loud"), testing::HasSubstr("loud"));
}

TEST(Log, InTheJournalHasItsLevelInFrontAndNoTime) {
  testing::internal::CaptureStderr();
  struct stat stream {};
  ASSERT_EQ(::fstat(STDERR_FILENO, &stream), 0);
  ::setenv("JOURNAL_STREAM", (std::to_string(stream.st_dev) + ":" + std::to_string(stream.st_ino)).c_str(),
           1);
  EXPECT_TRUE(start_log(LogFormat::kText, "trace"));
  spdlog::trace("one");
  spdlog::info("two");
  spdlog::warn("three");
  spdlog::error("four");
  spdlog::critical("five");
  EXPECT_TRUE(flush_log(std::chrono::seconds(20)));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "<7>one\n<6>two\n<4>three\n<3>four\n<2>five\n");
  ::unsetenv("JOURNAL_STREAM");
}

TEST(Log, ElsewhereThanInTheJournalHasItsTime) {
  ::setenv("JOURNAL_STREAM", "1:1", 1);
  EXPECT_THAT(logged(LogFormat::kText, "info", "words"),
              testing::MatchesRegex("[0-9-]+ [0-9:.]+ info +words\n"));
  ::unsetenv("JOURNAL_STREAM");
}

TEST(Log, RefusesUnknownLevels) {
  EXPECT_EQ(start_log(LogFormat::kText, "chatty").error().code, Code::kInvalidArgument);
  EXPECT_EQ(start_log(LogFormat::kText, "").error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace gpumem
