// The broker goes on as another program in the same process: its clients, their memory and what they share
// too.
#include <gmock/gmock.h>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

struct Upgrade : BrokerTest {
  void upgrade() {
    const Outcome outcome = broker_.upgrade();
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("as pid " + std::to_string(broker_.pid())));
  }
};

TEST_F(Upgrade, IsAPauseForClients) {
  expect_a_pause([this] { upgrade(); });
}

TEST_F(Upgrade, MemoryOfTheBrokerBeforeIsShared) {
  auto lender = client_with(mebibytes(6));
  auto user = client();
  EXPECT_TRUE(succeeded(lender->write("a", 7)));
  const Json command{{"do", "export"}, {"slice", "a"}, {"uses", 2}};
  const auto import = [&](const Json& handle, const char* name) {
    return succeeded(user->ask({{"do", "import"}, {"handle", handle}, {"import", name}})) &&
           succeeded(user->ask({{"do", "check"}, {"import", name}, {"value", 7}}));
  };
  const Json before = lender->ask(command);
  ASSERT_TRUE(succeeded(before));
  upgrade();
  EXPECT_TRUE(import(before.at("handle"), "i")) << "by a handle of the broker before";
  const Json anew = lender->ask(command);
  ASSERT_TRUE(succeeded(anew));
  EXPECT_TRUE(import(anew.at("handle"), "j")) << "by a handle of this one";
  expect_rest_after(*user, *lender);
}

TEST_F(Upgrade, WithoutABrokerSaysSo) {
  EXPECT_EQ(broker_.stop(), 0);
  const Outcome outcome = broker_.upgrade();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("no broker serves " + broker_.folder()));
}

TEST_F(Upgrade, ToAWrongConfigurationIsRefusedAndTheBrokerGoesOn) {
  write_file(broker_.config_file(), "[broker]\nreserve = \"plenty\"\n");
  const Outcome outcome = broker_.upgrade();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("does not accept the broker's configuration"));
  auto one = client_with(mebibytes(6));
  expect_rest_after(*one);
}

// The program of the broker is a copy, which can be taken away.
struct UpgradeOfACopy : testing::Test {
  static std::filesystem::path copy_in(const TemporaryFolder& folder) {
    std::filesystem::copy_file(gpumemd_program(), folder / "gpumemd");
    for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"})  // gpumemd needs them beside it
      std::filesystem::copy_file(sim_libraries() / library, folder / library);
    return folder / "gpumemd";
  }
  TemporaryFolder folder_;
  std::filesystem::path program_ = copy_in(folder_);
  BrokerProcess broker_{{.config = {}, .program = program_}};
};

TEST_F(UpgradeOfACopy, ToAnotherProgramIsRefusedAndTheBrokerGoesOn) {
  std::filesystem::remove(program_);
  write_file(program_, "#!/bin/sh\nexit 0\n");
  std::filesystem::permissions(program_, std::filesystem::perms::owner_all);
  ASSERT_EQ(::kill(broker_.pid(), SIGUSR2), 0);
  EXPECT_TRUE(eventually([&] { return broker_.log().find("gpumemd is not gpumemd;") != std::string::npos; }));
  EXPECT_GT(broker_.device().pool(), 0U);
  EXPECT_EQ(broker_.stop(), 0);
}

TEST_F(UpgradeOfACopy, ByAnotherFileIsRefused) {
  const Outcome outcome = broker_.upgrade();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr(program_.string() + " --upgrade"));
  EXPECT_TRUE(broker_.running());
}

TEST_F(UpgradeOfACopy, WithoutAProgramIsRefusedAndTheBrokerGoesOn) {
  std::filesystem::remove(program_);
  ASSERT_EQ(::kill(broker_.pid(), SIGUSR2), 0);
  EXPECT_TRUE(
      eventually([&] { return broker_.log().find("not upgraded: cannot run") != std::string::npos; }));
  EXPECT_GT(broker_.device().pool(), 0U);
  EXPECT_EQ(broker_.stop(), 0);
}

}  // namespace
}  // namespace gpumem::test
