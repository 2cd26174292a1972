#include "client/shim/memory/session/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gpumem::shim::test {
namespace {

using std::chrono::milliseconds;

struct SettingsTest : testing::Test {
  ~SettingsTest() override {
    for (const char* name : {"GPUMEM_LIMIT", "GPUMEM_WAIT", "GPUMEM_NAME", "GPUMEM_OPTIONAL", "GPUMEM_JOB"})
      ::unsetenv(name);
  }
};

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
  ::unsetenv("GPUMEM_LIMIT");
}

}  // namespace
}  // namespace gpumem::shim::test
