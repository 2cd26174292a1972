// `gpumem explain`: the sum of a device adds up to the byte, whoever asks and from where.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

inline const std::string kWatched =
    "[broker]\nreserve = \"all-but 128MiB\"\nsocket_group = 10000\npast_broker_allowance = \"16MiB\"\n"
    "reconcile_seconds = 0\n";

struct Explain : BrokerTest {
  explicit Explain(const std::string& more = {}) : BrokerTest({.config = kWatched + more}) {}

  std::unique_ptr<Child> holder(Bytes bytes) const {
    return std::make_unique<Child>(
        ChildOptions{.program = test_client_program(),
                     .arguments = {"hold", broker_.driver_folder(), std::to_string(bytes.count)},
                     .environment = {},
                     .user = {}});
  }
  /// The answer to `words`, which begins with `{`: `gpumem run` says something of its own besides.
  Json answer(std::vector<std::string> words, std::optional<User> user = {}) const {
    const Outcome outcome = gpumem(std::move(words), user);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    const auto begin = outcome.output.find("\n{\n") == std::string::npos ? 0 : outcome.output.find("\n{\n");
    const auto end = outcome.output.rfind("\n}\n");
    return Json::parse(outcome.output.substr(begin, end + 2 - begin));
  }
  /// As the broker says at last, when nothing moves and the driver lists `child`.
  Json account(const Child& child,
               const std::vector<std::string>& words = {"explain", "gpu0", "--json"}) const {
    Json device;
    EXPECT_TRUE(eventually([&] {
      device = answer(words)["devices"][0];
      return device["settled"] == true && find(device["sum"], "past_broker")["bytes"] != 0 &&
             find(find(device["sum"], "past_broker"), "process")["subject"] == std::to_string(child.pid());
    })) << device;
    return device;
  }

  /// The first line with this key at or below `line`; null: there is none.
  static Json find(const Json& line, const std::string& key) {
    if (line.is_null() || line["key"] == key) return line;
    for (const Json& part : line["parts"])
      if (Json found = find(part, key); !found.is_null()) return found;
    return {};
  }
  static void expect_sums(const Json& line) {
    std::int64_t sum = 0;
    for (const Json& part : line["parts"]) {
      if (!part["bytes"].is_null()) sum += part["bytes"].get<std::int64_t>();
      expect_sums(part);
    }
    if (line["parts"].empty()) return;
    EXPECT_EQ(line["bytes"], sum) << line;
  }
  /// All of the device is explained, and agrees with the driver.
  void expect_explained(const Json& device, Bytes lent) const {
    expect_sums(device["sum"]);
    EXPECT_EQ(device["sum"]["bytes"], mebibytes(256).count);
    EXPECT_EQ(find(device["sum"], "used")["bytes"], broker_.used_of_driver());
    EXPECT_EQ(find(device["sum"], "pool")["bytes"], broker_.device().created());
    EXPECT_EQ(find(device["sum"], "lent")["bytes"], lent.count);
    EXPECT_EQ(find(device["sum"], "unexplained")["bytes"], 0) << device;
  }
};

TEST_F(Explain, TheSumOfADeviceAddsUpToTheByteAndAfterAProcessHasEnded) {
  auto one = client_with(mebibytes(48)), two = client_with(mebibytes(16));
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  EXPECT_TRUE(succeeded(two->write("a", 2)));
  const auto child = holder(mebibytes(24));
  const Json device = account(*child);
  expect_explained(device, mebibytes(64));
  EXPECT_EQ(find(device["sum"], "tenant")["parts"].size(), 2U) << "a process each";
  EXPECT_GE(find(device["sum"], "past_broker")["bytes"], mebibytes(24).count);
  kill_and_reclaim(*two);
  EXPECT_TRUE(eventually([&] { return broker_.device().returning() == 0; }));
  expect_explained(account(*child), mebibytes(48));
  const Outcome text = gpumem({"explain"});
  EXPECT_NE(text.output.find(std::to_string(child->pid()) + " test_client"), std::string::npos)
      << text.output;
}

TEST_F(Explain, SaysTheSameInAJobWithTheDropInLibraries) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  const auto child = holder(mebibytes(24));
  const Json device = account(*child);
  const Json in_job = account(*child, {"run", "--limit", "32MiB", "--", cli_program(), "explain", "--json"});
  EXPECT_EQ(in_job["sum"], device["sum"]);
}

TEST_F(Explain, RelatesTheFiguresOfAProcess) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->ask({{"do", "in_use"}, {"slice", "a"}, {"bytes", mebibytes(40).count}})));
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  const Json program = answer({"explain", std::to_string(one->pid()), "--json"});
  const Json& device = program["devices"].at(0);
  EXPECT_EQ(find(device["sum"], "committed")["bytes"], mebibytes(48).count);
  EXPECT_EQ(find(device["sum"], "in_use")["bytes"], mebibytes(40).count);
  EXPECT_EQ(find(device["sum"], "cached")["bytes"], mebibytes(8).count);
  EXPECT_EQ(device["limit"], broker_.device().pool());
  EXPECT_EQ(device["addresses"], broker_.device().pool());
  EXPECT_EQ(device["nvidia_smi"], broker_.driver_view().processes[one->pid()]);
  EXPECT_GT(program["processes"][0]["virt"], program["processes"][0]["resident"]);
  EXPECT_EQ(program["frameworks"], nullptr);
}

TEST_F(Explain, ANumberIsADeviceThatIsLentElseAProcess) {
  EXPECT_EQ(answer({"explain", "0", "--json"})["devices"][0]["sum"]["bytes"], mebibytes(256).count);
  EXPECT_EQ(answer({"explain", "1", "--json"})["pid"], 1) << "there is no second device";
  EXPECT_EQ(answer({"explain", "pid:1", "--json"})["pid"], 1);
}

struct ExplainHost : Explain {
  ExplainHost() : Explain("[host]\nsize = \"256MiB\"\n") {}
};

TEST_F(ExplainHost, TheStoreIsASumOfBooksAndOfTheMachinesMemory) {
  ClientProcess one(broker_.folder());
  EXPECT_TRUE(succeeded(one.connect()));
  EXPECT_TRUE(succeeded(one.ask({{"do", "open_allocator"}, {"device", "host"}, {"pageable", true}})));
  EXPECT_TRUE(succeeded(one.ask({{"do", "allocate"}, {"bytes", mebibytes(16).count}})));
  EXPECT_TRUE(succeeded(one.ask({{"do", "charge"}, {"device", "host"}, {"bytes", mebibytes(4).count}})));
  const std::string pid = std::to_string(one.pid());
  Json device;
  EXPECT_TRUE(eventually([&] {
    device = answer({"explain", "host", "--json"})["devices"].at(0);
    return device["settled"] == true;
  })) << device;
  const Json& sum = device["sum"];
  expect_sums(sum);
  EXPECT_EQ(sum["bytes"], broker_.device(1).total()) << "the memory of the machine";
  EXPECT_GE(find(sum, "lent")["bytes"], mebibytes(16).count);
  EXPECT_EQ(find(find(sum, "lent"), "process")["subject"], pid);
  EXPECT_EQ(find(sum, "pool")["bytes"], broker_.device(1).created());
  EXPECT_EQ(find(sum, "declared")["bytes"], mebibytes(4).count);
  EXPECT_EQ(find(find(sum, "declared"), "process")["subject"], pid);
  EXPECT_EQ(find(sum, "past_broker")["bytes"], nullptr) << "no driver tells of it";
  EXPECT_EQ(find(sum, "unexplained")["bytes"], 0);
  const Json program = answer({"explain", pid, "--json"})["devices"].at(0);
  EXPECT_EQ(program["device"], "host");
  EXPECT_EQ(find(program["sum"], "lent")["bytes"], find(sum, "lent")["bytes"]);
  EXPECT_EQ(find(program["sum"], "declared")["bytes"], mebibytes(4).count);
  EXPECT_EQ(gpumem({"explain", pid}).output.find("nvidia-smi say"), std::string::npos) << "it has no GPU's";
  EXPECT_EQ(answer({"explain", "--json"})["devices"].size(), 2U) << "the store is one of all";
}

TEST_F(Explain, IsForEverybodyWhoMayConnect) {
  GPUMEM_NEEDS_ROOT();
  auto one = client_with(mebibytes(16), kAnn);
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  const Json device = answer({"explain", "--json"}, kBob)["devices"][0];
  expect_explained(device, mebibytes(16));
  EXPECT_EQ(answer({"explain", std::to_string(one->pid()), "--json"}, kBob)["processes"][0]["tenant"],
            "uid:10001");
}

TEST_F(Explain, AJobIsNamedByItsNumber) {
  ClientProcess owner(broker_.folder());
  EXPECT_TRUE(succeeded(owner.connect()));
  const Json begun = owner.ask({{"do", "begin_job"}, {"limit", mebibytes(32).count}});
  ASSERT_TRUE(succeeded(begun));
  const std::string number = begun["job"].dump();
  ClientProcess member(broker_.folder(), {.environment = {{"GPUMEM_JOB", number}}});
  EXPECT_TRUE(succeeded(member.connect()));
  EXPECT_TRUE(succeeded(member.open("a")));
  EXPECT_TRUE(succeeded(member.grow("a", mebibytes(8))));
  const Json program = answer({"explain", "job:" + number, "--json"});
  EXPECT_EQ(program["job"], begun["job"]);
  EXPECT_EQ(find(program["devices"].at(0)["sum"], "lent")["bytes"], mebibytes(8).count);
  EXPECT_EQ(program["devices"][0]["limit"], mebibytes(32).count);
  for (const char* none : {"job:99", "2147483646", "gpu9", "job:", "pid:", "pid:0"}) {
    const Outcome outcome = gpumem({"explain", none});
    EXPECT_EQ(outcome.status, 1) << none;
    EXPECT_NE(outcome.output.find(none), std::string::npos) << outcome.output;
  }
}

}  // namespace
}  // namespace gpumem::test
