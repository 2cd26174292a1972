// Memory that workers of a killed program keep by a descriptor that they inherited.
#include <csignal>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

// The broker owns half of the device. The rest, for contexts, passes as memory that has come back.
struct LeftBehind : BrokerTest {
  LeftBehind()
      : BrokerTest({.simulate = "1x4GiB", .config = "[broker]\nreserve = \"50%\"\nreconcile_seconds = 0\n"}) {
  }

  Json device_after_a_look() const {
    static_cast<void>(gpumem({"reconcile", "--now"}));
    return Json::parse(gpumem({"status", "--json"}).output)["devices"][0];
  }
};

TEST_F(LeftBehind, MemoryIsShownByStatusAndCheckUntilTheLastWorkerEnds) {
  EXPECT_EQ(device_after_a_look()["unexplained"], 0);
  ClientProcess trainer(broker_.folder());
  ASSERT_TRUE(succeeded(trainer.ask({{"do", "raw_connect"}})));
  ASSERT_TRUE(succeeded(trainer.ask({{"do", "raw_grow"}, {"bytes", gibibytes(1).count}})));
  ASSERT_TRUE(eventually([&] { return broker_.device().active() == gibibytes(1).count; }));
  const Json worker = trainer.ask({{"do", "fork_idle"}});
  trainer.kill();
  ASSERT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();

  const Json device = device_after_a_look();
  EXPECT_EQ(device["free"], device["pool"]) << "the pool was made up for by other memory";
  EXPECT_EQ(device["missing"], 0);
  EXPECT_EQ(device["unexplained"], gibibytes(1).count);
  EXPECT_NE(gpumem({"status"}).output.find("UNEXPLAINED"), std::string::npos);
  EXPECT_NE(gpumem({"check"}).output.find("1GiB are in use by nobody that the broker knows"),
            std::string::npos)
      << gpumem({"check"}).output;

  ASSERT_EQ(::kill(worker["pid"], SIGKILL), 0);
  EXPECT_TRUE(eventually([&] { return device_after_a_look()["unexplained"] == 0; }));
  EXPECT_EQ(gpumem({"status"}).output.find("UNEXPLAINED"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::test
