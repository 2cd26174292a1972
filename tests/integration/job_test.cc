// Jobs: the memory of a command, for all its processes together.
#include <fcntl.h>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

constexpr Bytes kLimit = mebibytes(64);

struct JobOfACommand : BrokerTest {
  explicit JobOfACommand(BrokerOptions options = {.config = kSomeSpare}) : BrokerTest(std::move(options)) {
    EXPECT_TRUE(succeeded(owner_->connect()));
  }

  /// The number of a job of the owner's.
  std::string begin() {
    const Json begun = owner_->ask({{"do", "begin_job"}, {"limit", kLimit.count}});
    EXPECT_TRUE(succeeded(begun));
    return std::to_string(begun.value("job", std::uint64_t{0}));
  }
  /// A process of the command. It has connected and opened slice "a".
  std::unique_ptr<ClientProcess> member(const std::string& job) {
    auto one = std::make_unique<ClientProcess>(broker_.folder(),
                                               ClientOptions{.environment = {{"GPUMEM_JOB", job}}});
    EXPECT_EQ(std::to_string(one->connect()["job"].get<std::uint64_t>()), job);
    EXPECT_TRUE(succeeded(one->open("a")));
    return one;
  }

  std::unique_ptr<ClientProcess> owner_ = std::make_unique<ClientProcess>(broker_.folder());
};

TEST_F(JobOfACommand, BoundsItsProcessesTogetherAndTellsWhatTheyUsed) {
  const std::string job = begin();
  auto one = member(job);
  auto other = member(job);
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(40))));
  const Json refused = other->grow("a", mebibytes(40));
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_NE(refused["message"].get<std::string>().find("its job's limit of 64MiB"), std::string::npos)
      << refused;
  EXPECT_TRUE(succeeded(other->grow("a", mebibytes(24))));
  EXPECT_EQ(other->ask({{"do", "usage"}})["devices"][0]["limit"], kLimit.count);
  kill_and_reclaim(*one);
  const Json account = owner_->ask({{"do", "job_account"}});
  EXPECT_EQ(account["peak"], kLimit.count) << account;
  EXPECT_EQ(account["denied"], 1) << account;
  broker_.kill();
  broker_.start_again();
  EXPECT_TRUE(eventually([this] {
    const std::string log = broker_.log();
    const auto first = log.find(": resumed");
    return first != std::string::npos && log.rfind(": resumed") != first;
  })) << "the owner, too, though it asks for nothing";
  EXPECT_TRUE(failed_with(other->grow("a", mebibytes(66)), "RESOURCE_EXHAUSTED"))
      << "the next broker knows of it";
  EXPECT_TRUE(succeeded(other->grow("a", kLimit)));
  EXPECT_TRUE(succeeded(other->disconnect()));
  EXPECT_TRUE(succeeded(owner_->disconnect()));
  expect_rest();
}

TEST_F(JobOfACommand, HasWhatIsReservedForIt) {
  const std::string job = begin();
  const std::string device = broker_.device().uuid();
  EXPECT_TRUE(
      succeeded(owner_->ask({{"do", "reserve_for_job"}, {"device", device}, {"bytes", kLimit.count}})));
  auto neighbour = client();
  EXPECT_TRUE(failed_with(neighbour->grow("a", kPool), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(neighbour->grow("a", kPool - kLimit)));
  auto one = member(job);
  EXPECT_TRUE(succeeded(one->grow("a", kLimit)));
}

TEST_F(JobOfACommand, ThatIsNotThereIsToldOnceAndTheProcessLimitsItself) {
  const TemporaryFolder folder;
  UniqueFd said(::open((folder / "said").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  ClientProcess one(broker_.folder(),
                    {.environment = {{"GPUMEM_JOB", "7"}, {"GPUMEM_LIMIT", "16MiB"}}, .output = said.get()});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(one.connect()["job"], 0);
  EXPECT_EQ(
      read_file(folder / "said"),
      "gpumem: job 7 of GPUMEM_JOB is not there any more, or another user's; GPUMEM_LIMIT holds for this "
      "process alone\n");
  EXPECT_EQ(one.open("a")["limit"], mebibytes(16).count);
  EXPECT_TRUE(failed_with(one.grow("a", mebibytes(18)), "RESOURCE_EXHAUSTED"));
}

struct JobOfAnotherUser : JobOfACommand {
  JobOfAnotherUser() : JobOfACommand({.config = shared()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(JobOfAnotherUser, IsNotJoined) {
  ClientProcess eve(broker_.folder(), {.user = kBob, .environment = {{"GPUMEM_JOB", begin()}}});
  EXPECT_EQ(eve.connect()["job"], 0);
}

}  // namespace
}  // namespace gpumem::test
