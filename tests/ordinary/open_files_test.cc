// A broker that was started by hand where a process may open few files.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

constexpr const char* kGuarantee = R"(
lend_guarantees = true
[[tenant]]
name = "bob"
user = 10002
guarantee = "3GiB"
)";

struct FewOpenFiles : BrokerTest {
  // Root would raise the limit.
  FewOpenFiles()
      : BrokerTest({.simulate = "1x12GiB",
                    .config = shared(kGuarantee),
                    .user = ::geteuid() == 0 ? std::optional(kAnn) : std::nullopt,
                    .open_files = 4096}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  // Takes 2 MiB after 2 MiB, until that is refused; the refusal.
  static Json take_small_pieces(ClientProcess& client, std::uint64_t most) {
    Json answer;
    for (std::uint64_t pieces = 1; pieces <= most; ++pieces) {
      answer = client.grow("a", mebibytes(2 * pieces));
      if (!answer.at("ok").get<bool>()) break;
    }
    return answer;
  }
};

TEST_F(FewOpenFiles, AreNotUsedUpByOneProgramWithManySmallExtents) {
  auto greedy = client({}, kCat);
  const Json refusal = take_small_pieces(*greedy, 2000);
  ASSERT_TRUE(failed_with(refusal, "RESOURCE_EXHAUSTED"));
  EXPECT_NE(refusal.at("message").get<std::string>().find("LimitNOFILE"), std::string::npos) << refusal;
  EXPECT_GE(broker_.device().active(), mebibytes(1024).count);

  const Outcome status = gpumem({"status"});
  EXPECT_EQ(status.status, 0) << status.output;
  EXPECT_EQ(broker_.device().missing(), 0U);

  auto claimant = client_with(gibibytes(2), kBob);
  EXPECT_TRUE(succeeded(claimant->grow("a", gibibytes(2) + mebibytes(2))));
  auto another = client({}, kBob);
  EXPECT_TRUE(succeeded(another->grow("a", mebibytes(2))));
  expect_rest_after(*claimant, *another, *greedy);
}

TEST_F(FewOpenFiles, LeaveRoomForAdministratorsEvenIfAGuaranteeIsUsedInSmallExtents) {
  auto claimant = client({}, kBob);
  const Json refusal = take_small_pieces(*claimant, 2000);
  ASSERT_TRUE(failed_with(refusal, "RESOURCE_EXHAUSTED"));
  EXPECT_NE(refusal.at("message").get<std::string>().find("LimitNOFILE"), std::string::npos) << refusal;
  const Outcome status = gpumem({"status"});
  EXPECT_EQ(status.status, 0) << status.output;
  EXPECT_TRUE(succeeded(client_with(gibibytes(1), kCat)->disconnect())) << "large extents are still there";
  expect_rest_after(*claimant);
}

}  // namespace
}  // namespace gpumem::test
