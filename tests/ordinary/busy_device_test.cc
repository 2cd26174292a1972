// A broker that starts on a device that a program without gpumem nearly fills.
#include <gmock/gmock.h>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

constexpr Bytes kWhole = mebibytes(22'118);  // 90% of the device

struct BusyDevice : BrokerTest {
  BusyDevice() : BrokerTest({.simulate = "1x24GiB", .config = ::geteuid() == 0 ? kConfig : ""}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  // Ends the broker, and starts the next one when another program has 18 GiB.
  std::unique_ptr<Child> restart_beside_another_program() {
    const std::string uuid = broker_.device().uuid();
    broker_.kill();
    auto other = std::make_unique<Child>(
        ChildOptions{.program = test_client_program(),
                     .arguments = {"hold", broker_.driver_folder(), std::to_string(gibibytes(18).count)},
                     .user = kBob});
    EXPECT_TRUE(eventually([&] {
      const Outcome used =
          run({.program = test_client_program(), .arguments = {"used", broker_.driver_folder(), uuid}});
      return std::stoull(used.output) > gibibytes(18).count;
    }));
    broker_.start_again();
    return other;
  }
  void expect_whole_soon() {
    EXPECT_TRUE(eventually([this] { return broker_.device().missing() == 0; })) << broker_.device().missing();
  }

  static constexpr const char* kConfig = R"([broker]
socket_group = 10000
[[tenant]]
name = "ann"
user = 10001
guarantee = "8GiB"
)";
};

TEST_F(BusyDevice, LendsWhatThereIsSaysWhatIsMissingAndGrowsWhenTheOtherProgramEnds) {
  const auto other = restart_beside_another_program();
  const v1::DeviceStatus device = broker_.device();
  EXPECT_EQ(device.pool(), kWhole.count);
  const std::uint64_t there = device.pool() - device.missing();
  EXPECT_GT(there, gibibytes(4).count);
  EXPECT_LT(there, gibibytes(5).count) << "more than a GiB stays free for contexts";
  EXPECT_THAT(broker_.log(), HasSubstr("of the pool of 21.59GiB are missing"));
  const std::string found = gpumem({"check"}).output;
  EXPECT_THAT(found, HasSubstr("are missing, because others use the device: test_client (pid " +
                               std::to_string(other->pid())));
  EXPECT_THAT(found, HasSubstr("tenant 'ann' has 0B of 8GiB"));

  auto ann = client_with(gibibytes(3), kAnn);
  const Json refused = ann->grow("a", gibibytes(8));
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_THAT(refused.at("message").get<std::string>(), HasSubstr("missing at present"));
  other->kill();
  EXPECT_TRUE(succeeded(ann->grow("a", gibibytes(9), kPatience)));
  expect_whole_soon();
  EXPECT_THAT(gpumem({"check"}).output, testing::Not(HasSubstr("missing")));
  expect_rest_after(*ann);
}

TEST_F(BusyDevice, KeepsItsLoansOverARestart) {
  auto ann = client_with(gibibytes(3), kAnn);
  const auto other = restart_beside_another_program();
  EXPECT_EQ(broker_.device().pool(), kWhole.count);
  EXPECT_EQ(broker_.device().active(), gibibytes(3).count);
  EXPECT_GT(broker_.device().missing(), gibibytes(16).count);
  EXPECT_TRUE(succeeded(ann->grow("a", gibibytes(4))));
  other->kill();
  expect_whole_soon();
  expect_rest_after(*ann);
}

}  // namespace
}  // namespace gpumem::test
