// The configuration is read again on SIGHUP: all of it takes effect, or nothing.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

std::string with_limit(const std::string& limit) {
  return std::string(kSomeSpare) + "[default]\nlimit = \"" + limit + "\"\n";
}

struct Reload : BrokerTest {
  Reload() : BrokerTest({.config = with_limit("64MiB")}) {}

  std::uint64_t limit_in_page(ClientProcess& client) {
    return client.ask({{"do", "usage"}})["devices"][0]["limit"];
  }
};

TEST_F(Reload, RaisesALimitForSessionsThatAreOpen) {
  auto one = client_with(mebibytes(64));
  broker_.reload(with_limit("96MiB"));
  EXPECT_TRUE(eventually([&] { return limit_in_page(*one) == mebibytes(96).count; }));
  EXPECT_TRUE(succeeded(one->open("b")));
  EXPECT_TRUE(succeeded(one->grow("b", mebibytes(32))));
  EXPECT_TRUE(failed_with(one->grow("b", mebibytes(34)), "RESOURCE_EXHAUSTED"));
}

TEST_F(Reload, LoweredLimitRefusesGrowthAndTakesNothing) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->write("a", 3)));
  broker_.reload(with_limit("32MiB"));
  EXPECT_TRUE(eventually([&] { return limit_in_page(*one) == mebibytes(32).count; }));
  EXPECT_TRUE(failed_with(one->grow("a", mebibytes(50)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(one->check("a", 3)));
  EXPECT_EQ(broker_.device().active(), mebibytes(48).count);
}

TEST_F(Reload, BrokenFileKeepsTheOldConfiguration) {
  auto one = client_with(mebibytes(32));
  broker_.reload("[default]\nlimit = \"plenty\"\n");
  EXPECT_TRUE(eventually([&] {
    return broker_.log().find("configuration not reloaded, the old one stays in force") != std::string::npos;
  }));
  EXPECT_TRUE(eventually([&] { return broker_.log().find("gpumemd.toml:2:") != std::string::npos; }))
      << "the line is named";
  EXPECT_EQ(limit_in_page(*one), mebibytes(64).count);
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(64))));
}

TEST_F(Reload, RefusesAnAccountThatWasNeverThere) {
  auto one = client_with(mebibytes(32));
  broker_.reload(with_limit("96MiB") + "[[tenant]]\nname = \"x\"\nuser = \"no-such-user\"\n");
  EXPECT_TRUE(eventually([&] {
    return broker_.log().find("not reloaded, the old one stays in force: tenant 'x': there is no user") !=
           std::string::npos;
  }));
  EXPECT_EQ(limit_in_page(*one), mebibytes(64).count);
}

TEST_F(Reload, ByTheCommandTellsWhatCameOfIt) {
  const auto reload = [&](const std::string& config) {
    write_file(broker_.config_file(), config);
    return gpumem({"reload"});
  };
  auto one = client_with(mebibytes(32));
  EXPECT_EQ(reload(with_limit("96MiB")).output, "reloaded\n");
  EXPECT_TRUE(eventually([&] { return limit_in_page(*one) == mebibytes(96).count; }));
  const Outcome broken = reload("[default]\nlimit = 1GiB\n");
  EXPECT_EQ(broken.status, 1);
  EXPECT_EQ(broken.output.find("gpumem: not reloaded, the old configuration stays in force: " +
                               broker_.config_file().string() + ":2:"),
            0U)
      << broken.output;
  EXPECT_EQ(reload("[broker]\nreserve = \"all-but 64MiB\"\n").status, 1) << "needs a restart";
  EXPECT_EQ(limit_in_page(*one), mebibytes(96).count);
  const Outcome partly = reload("[broker]\nreserve = \"all-but 32MiB\"\nsocket_group = 10000\n");
  EXPECT_EQ(partly.status, 0);
  EXPECT_NE(partly.output.find("socket_group stays '': '10000' needs a restart"), std::string::npos)
      << partly.output;
}

TEST_F(Reload, ChangedReserveIsRefused) {
  broker_.reload("[broker]\nreserve = \"all-but 64MiB\"\n");
  EXPECT_TRUE(eventually([&] { return broker_.log().find("needs a restart") != std::string::npos; }));
  EXPECT_EQ(broker_.device().pool(), kPool.count);
}

TEST_F(Reload, NamesKeysThatNeedARestart) {
  broker_.reload("[broker]\nreserve = \"all-but 32MiB\"\nsocket_group = 10000\nstate_dir = \"/elsewhere\"\n");
  EXPECT_TRUE(eventually([&] {
    return broker_.log().find("socket_group stays '': '10000' needs a restart") != std::string::npos;
  }));
  EXPECT_TRUE(
      eventually([&] { return broker_.log().find("'/elsewhere' needs a restart") != std::string::npos; }));
  EXPECT_EQ(broker_.log().find("runtime_dir stays"), std::string::npos) << "the command line named it";
  EXPECT_FALSE(std::filesystem::exists("/elsewhere"));
}

TEST_F(Reload, CanBeRepeatedWhileClientsComeAndGo) {
  for (int round = 0; round < 5; ++round) {
    auto one = client_with(mebibytes(16));
    broker_.reload(with_limit(round % 2 == 0 ? "96MiB" : "64MiB"));
    EXPECT_TRUE(succeeded(one->grow("a", mebibytes(32))));
    one->kill();
  }
  expect_rest();
}

}  // namespace
}  // namespace gpumem::test
