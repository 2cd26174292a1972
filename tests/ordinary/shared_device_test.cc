// A GPU that others use too, a display above all: its pool is created on demand.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// A folder as /sys/class/drm, of the first GPU of the simulated machine and its connector.
class Connector {
 public:
  explicit Connector(bool is_connected) {
    fs::create_directories(folder_.path() / "card0");
    fs::create_directories(folder_.path() / "card0-DP-1");
    fs::create_symlink("../../../0000:01:00.0", folder_.path() / "card0" / "device");
    set(is_connected);
  }
  void set(bool is_connected) {
    std::ofstream(folder_.path() / "card0-DP-1" / "status")
        << (is_connected ? "connected\n" : "disconnected\n");
  }
  std::vector<std::string> arguments() const { return {"--display-dir", folder_.path()}; }

 private:
  TemporaryFolder folder_;
};

// Before the broker that reads it.
struct WithConnector {
  explicit WithConnector(bool is_connected) : connector(is_connected) {}
  Connector connector;
};

struct SharedDevice : WithConnector, BrokerTest {
  explicit SharedDevice(bool has_display = true,
                        const std::string& config = "[broker]\nreconcile_seconds = 1\n")
      : WithConnector(has_display),
        BrokerTest({.simulate = "1x24GiB", .config = config, .arguments = connector.arguments()}) {}
  // All but a small stock.
  bool is_left_to_others() const { return broker_.used_of_driver() <= mebibytes(256).count; }
  bool is_whole() const { return broker_.used_of_driver() == broker_.device().pool(); }
  std::unique_ptr<Child> other_program(Bytes bytes) {
    return std::make_unique<Child>(
        ChildOptions{.program = test_client_program(),
                     .arguments = {"hold", broker_.driver_folder(), std::to_string(bytes.count)}});
  }
};

struct DeviceWithoutDisplay : SharedDevice {
  DeviceWithoutDisplay() : SharedDevice(false) {}
};

TEST_F(SharedDevice, IsLeftToProgramsOutsideUntilClientsNeedItsMemory) {
  EXPECT_TRUE(broker_.device().elastic());
  EXPECT_TRUE(is_left_to_others()) << broker_.used_of_driver();
  EXPECT_THAT(gpumem({"status"}).output, HasSubstr("its pool is created on demand; 256MiB of"));
  const auto other = other_program(gibibytes(18));
  ASSERT_TRUE(eventually([this] { return broker_.used_of_driver() > gibibytes(18).count; }));
  auto inside = client_with(gibibytes(3));
  EXPECT_EQ(broker_.device().missing(), 0U);
  const Json refused = inside->grow("a", gibibytes(8));
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_THAT(refused.at("message").get<std::string>(), HasSubstr("because others use the device"));
  other->kill();
  EXPECT_TRUE(succeeded(inside->grow("a", gibibytes(20), kPatience)));
  expect_to_leave(*inside);
  EXPECT_TRUE(eventually([this] { return is_left_to_others(); })) << broker_.used_of_driver();
}

TEST_F(SharedDevice, TakesBackTheMemoryOfAKilledClient) {
  auto inside = client_with(gibibytes(12));
  kill_and_reclaim(*inside);
  EXPECT_TRUE(eventually([this] { return is_left_to_others(); })) << broker_.used_of_driver();
  auto next = client_with(gibibytes(20));
  expect_to_leave(*next);
}

TEST_F(SharedDevice, KeepsItsLoansOverARestart) {
  auto inside = client_with(gibibytes(4));
  broker_.kill();
  broker_.start_again();
  EXPECT_TRUE(broker_.device().elastic());
  EXPECT_EQ(broker_.device().active(), gibibytes(4).count);
  EXPECT_TRUE(succeeded(inside->grow("a", gibibytes(6))));
  expect_to_leave(*inside);
  EXPECT_TRUE(eventually([this] { return is_left_to_others(); })) << broker_.used_of_driver();
}

// Displays are looked for every 10 s, and memory leaves the pool when it was idle for 10 s.
constexpr std::chrono::seconds kLong{60};

TEST_F(DeviceWithoutDisplay, IsLeftToTheDisplayThatIsPluggedInAndTakenWholeWhenItIsPulled) {
  EXPECT_FALSE(broker_.device().elastic());
  EXPECT_TRUE(is_whole());
  connector.set(true);
  EXPECT_TRUE(eventually([this] { return is_left_to_others(); }, kLong)) << broker_.used_of_driver();
  EXPECT_THAT(broker_.log(), HasSubstr("a display is connected; its pool is created on demand from now on"));
  connector.set(false);
  EXPECT_TRUE(eventually([this] { return is_whole(); }, kLong)) << broker_.used_of_driver();
}

TEST_F(SharedDevice, IsTakenWholeIfTheConfigurationSaysSo) {
  broker_.reload("[broker]\nreconcile_seconds = 1\npool = \"all\"\n");
  EXPECT_TRUE(eventually([this] { return is_whole(); })) << broker_.used_of_driver();
  EXPECT_FALSE(broker_.device().elastic());
}

}  // namespace
}  // namespace gpumem::test
