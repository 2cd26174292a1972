#include "client/shim/memory/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gpumem::shim::test {
namespace {

using std::chrono::milliseconds;

struct SettingsTest : testing::Test {
  ~SettingsTest() override {
    for (const char* name : {"GPUMEM_LIMIT", "GPUMEM_WAIT", "GPUMEM_NAME", "GPUMEM_OPTIONAL"})
      ::unsetenv(name);
  }
};

TEST(WaitTest, IsReadWithItsUnit) {
  EXPECT_EQ(parse_wait("1500ms").value(), milliseconds(1500));
  EXPECT_EQ(parse_wait("60s").value(), milliseconds(60'000));
  EXPECT_EQ(parse_wait("60").value(), milliseconds(60'000));
  EXPECT_EQ(parse_wait("5m").value(), milliseconds(300'000));
  EXPECT_EQ(parse_wait("1h").value(), milliseconds(3'600'000));
  EXPECT_EQ(parse_wait("0").value(), milliseconds(0));
}

TEST(WaitTest, IsRefusedWhereItCannotBeMeant) {
  for (const char* text : {"", "s", "-1s", "1.5s", "5 s", "1d", "99999999999h", "9223372036854775807ms"})
    EXPECT_FALSE(parse_wait(text)) << text;
}

TEST_F(SettingsTest, ComeFromTheEnvironment) {
  ::setenv("GPUMEM_LIMIT", "8GiB", 1);
  ::setenv("GPUMEM_WAIT", "2m", 1);
  ::setenv("GPUMEM_NAME", "training", 1);
  ::setenv("GPUMEM_OPTIONAL", "1", 1);
  const auto settings = Settings::from_environment();
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->limit, gibibytes(8));
  EXPECT_EQ(settings->wait, milliseconds(120'000));
  EXPECT_EQ(settings->name, "training");
  EXPECT_TRUE(settings->optional);
}

TEST_F(SettingsTest, HaveDefaults) {
  const auto settings = Settings::from_environment();
  ASSERT_TRUE(settings);
  EXPECT_TRUE(settings->limit.is_zero());
  EXPECT_EQ(settings->wait, milliseconds(30'000));
  EXPECT_FALSE(settings->optional);
}

TEST_F(SettingsTest, NameTheVariableThatCannotBeRead) {
  ::setenv("GPUMEM_LIMIT", "much", 1);
  const auto settings = Settings::from_environment();
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().code, Code::kInvalidArgument);
  EXPECT_NE(settings.error().message.find("GPUMEM_LIMIT"), std::string::npos) << settings.error().message;
}

}  // namespace
}  // namespace gpumem::shim::test
