// Memory that is lent comes back when somebody has a right to it: by what the library trims, by what a
// program gives, and from others when one has no more.
#include <fcntl.h>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using std::chrono::minutes;

constexpr const char* kCatsLimit = R"(
[[tenant]]
name = "cat"
user = 10003
limit = "128MiB"
)";

struct Reclaim : BrokerTest {
  explicit Reclaim(const std::string& simulate = "1x256MiB")
      : BrokerTest({.simulate = simulate, .config = shared(std::string(kLending) + kCatsLimit)}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  /// A client with slice "a", grown to `bytes`, whose memory beyond `in_use` may be trimmed.
  std::unique_ptr<ClientProcess> trimmed_client(User user, Bytes bytes, Bytes in_use) {
    auto client = std::make_unique<ClientProcess>(broker_.folder(), ClientOptions{.user = user});
    EXPECT_TRUE(succeeded(client->connect()));
    EXPECT_TRUE(succeeded(
        client->ask({{"do", "open"}, {"slice", "a"}, {"device", ""}, {"limit", 0}, {"trim", true}})));
    declare_in_use(*client, in_use);
    EXPECT_TRUE(succeeded(client->grow("a", bytes, minutes(1))));
    return client;
  }
  static void declare_in_use(ClientProcess& client, Bytes in_use) {
    EXPECT_TRUE(succeeded(client.ask({{"do", "in_use"}, {"slice", "a"}, {"bytes", in_use.count}})));
  }
  static Bytes committed(ClientProcess& client) {
    return {client.ask({{"do", "committed"}, {"slice", "a"}})["committed"].get<std::uint64_t>()};
  }
  /// Ann claims her guarantee, and gets it.
  void claim() {
    auto ann = client({}, kAnn);
    EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(64), minutes(1))));
    EXPECT_TRUE(succeeded(ann->check("a", 0))) << "nobody's old bytes";
    EXPECT_EQ(ann->leave(), 0);
  }
};

TEST_F(Reclaim, TrimsUnusedMemoryOfABorrowerForAGuarantee) {
  auto bob = trimmed_client(kBob, kPool, mebibytes(100));
  EXPECT_TRUE(succeeded(bob->write("a", 0xbb)));
  claim();
  EXPECT_LE(committed(*bob), kPool - mebibytes(64));
  EXPECT_GE(committed(*bob), mebibytes(100));
  EXPECT_TRUE(succeeded(bob->check("a", 0xbb)));
  EXPECT_TRUE(succeeded(bob->grow("a", kPool, minutes(1)))) << "it may borrow again";
}

TEST_F(Reclaim, IsAskedOfAnotherWhenOneHasNoMoreToGive) {
  auto bob = client_with(mebibytes(112), kBob);
  auto cat = trimmed_client(kCat, mebibytes(112), {});
  claim();
  EXPECT_EQ(committed(*bob), mebibytes(112)) << "nobody's use is taken away";
  EXPECT_LE(committed(*cat), mebibytes(48));
}

TEST_F(Reclaim, IsDoneByAProgramsOwnHandler) {
  const TemporaryFolder folder;
  const UniqueFd output(::open((folder / "said").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  Child elastic({.program = GPUMEM_TEST_ELASTIC,
                 .arguments = {"--size", "224MiB", "--keep", "32MiB", "--seconds", "3600"},
                 .environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()}},
                 .user = kBob,
                 .output = output.get()});
  ASSERT_TRUE(eventually([&] { return broker_.device().free() == 0; })) << read_file(folder / "said");
  claim();
  EXPECT_TRUE(eventually([&] { return read_file(folder / "said").find("gave ") != std::string::npos; }))
      << read_file(folder / "said");
  EXPECT_TRUE(elastic.running());
  elastic.kill();
  expect_rest();
}

TEST_F(Reclaim, IsDoneForADebtThatDeclaredMemoryMakes) {
  auto cat = trimmed_client(kCat, mebibytes(96), mebibytes(16));
  const std::string device = broker_.device().uuid();
  const auto declare = [&](Bytes bytes) {
    return cat->ask({{"do", "charge"}, {"device", device}, {"bytes", bytes.count}});
  };
  EXPECT_TRUE(succeeded(declare(mebibytes(64))));
  EXPECT_TRUE(eventually([&] { return committed(*cat) <= mebibytes(64); })) << to_string(committed(*cat));
  EXPECT_GE(committed(*cat), mebibytes(16));
  EXPECT_TRUE(failed_with(cat->grow("a", mebibytes(96)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(declare({})));
  EXPECT_TRUE(succeeded(cat->grow("a", mebibytes(96), minutes(1))));
}

TEST_F(Reclaim, LeavesFreeMemoryToARequestThatTakesLess) {
  auto bob = client_with(mebibytes(200), kBob);
  auto cat = client({}, kCat);
  const Json answer = cat->ask({{"do", "grow"},
                                {"slice", "a"},
                                {"target", mebibytes(64).count},
                                {"least", mebibytes(8).count},
                                {"wait_ms", 0}});
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer["committed"], mebibytes(24).count);
}

struct JointGrowth : Reclaim {
  JointGrowth() : Reclaim("2x256MiB") {}
};

TEST_F(JointGrowth, IsOfAllDevicesOrOfNone) {
  auto bob = client({}, kBob);  // "a" is of the first device
  EXPECT_TRUE(succeeded(bob->open("b", {}, broker_.device(1).uuid())));
  const auto together = [&](Bytes first, Bytes second) {
    return bob->ask(
        {{"do", "grow_all"},
         {"steps", {{{"slice", "a"}, {"target", first.count}}, {{"slice", "b"}, {"target", second.count}}}}});
  };
  EXPECT_TRUE(failed_with(together(mebibytes(16), kPool + mebibytes(2)), "RESOURCE_EXHAUSTED"));
  EXPECT_EQ(broker_.device(0).free(), kPool.count);
  EXPECT_EQ(broker_.device(1).free(), kPool.count);
  EXPECT_TRUE(succeeded(together(mebibytes(16), mebibytes(32))));
  EXPECT_EQ(broker_.device(0).free(), (kPool - mebibytes(16)).count);
  EXPECT_EQ(broker_.device(1).free(), (kPool - mebibytes(32)).count);
  EXPECT_TRUE(succeeded(bob->check("a", 0)));
  EXPECT_TRUE(succeeded(bob->check("b", 0)));
}

}  // namespace
}  // namespace gpumem::test
