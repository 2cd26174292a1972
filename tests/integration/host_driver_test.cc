// The host store as memory that the driver allocates and pins.
#include "gpumem/session.h"
#include "sim/control/faults.h"
#include "tests/integration/regions/region_fixture.h"

namespace gpumem::test {
namespace {

const std::string kFiles = std::string(kSomeSpare) + "[host]\nsize = \"256MiB\"\n";
const std::string kOfDriver = kFiles + "kind = \"driver\"\n";
constexpr Bytes kPiece = mebibytes(16);

struct HostOfDriver : RegionTest {
  explicit HostOfDriver(const std::string& config = kOfDriver) : RegionTest({.config = config}) {}

  v1::DeviceStatus store() const { return broker_.device(1); }
  Bytes charged() const {
    const v1::DeviceStatus status = store();
    return {status.offered() + status.active() + status.returning() + status.quarantined()};
  }
  void await_quarantine() {
    EXPECT_TRUE(eventually([&] { return store().quarantined() >= kPiece.count; }));
  }
  void await_rest() {
    EXPECT_TRUE(eventually([&] { return charged().is_zero(); })) << charged().count;
  }
  std::unique_ptr<ClientProcess> connected() {
    auto one = std::make_unique<ClientProcess>(broker_.folder(), ClientOptions{});
    EXPECT_TRUE(succeeded(one->connect("test", client_timeout_)));
    return one;
  }
  std::unique_ptr<ClientProcess> allocating() {
    auto one = connected();
    EXPECT_TRUE(succeeded(one->ask({{"do", "open_allocator"}, {"device", "host"}, {"idle_ms", 0}})));
    return one;
  }
  std::unique_ptr<ClientProcess> publisher_of_store(int value) {
    auto one = connected();
    EXPECT_TRUE(succeeded(one->open("a", {}, "host")));
    EXPECT_TRUE(succeeded(one->grow("a", kPiece)));
    EXPECT_TRUE(succeeded(one->write("a", value)));
    EXPECT_TRUE(succeeded(publish(*one)));
    return one;
  }
  static Json of_block(ClientProcess& client, const char* what, const Json& block, int value = 7) {
    return client.ask({{"do", what}, {"at", block["at"]}, {"bytes", kPiece.count}, {"value", value}});
  }
};

TEST_F(HostOfDriver, AnAllocatorsMemoryIsItsProcesssUntilThatEnds) {
  auto one = allocating();
  const Json block = one->ask({{"do", "allocate"}, {"bytes", kPiece.count}});
  ASSERT_TRUE(succeeded(block));
  EXPECT_TRUE(succeeded(of_block(*one, "write_block", block)));
  EXPECT_TRUE(succeeded(of_block(*one, "check_block", block)));
  EXPECT_EQ(broker_.device(0).free(), kPool.count) << "no device is charged";
  EXPECT_TRUE(succeeded(of_block(*one, "free", block)));
  EXPECT_TRUE(succeeded(one->ask({{"do", "close_allocator"}})));
  await_quarantine();
  one->kill();
  await_rest();
}

TEST_F(HostOfDriver, NoneOfItIsPageable) {
  auto session = Session::connect({.runtime_folder = broker_.folder(), .timeout = client_timeout_});
  ASSERT_TRUE(session);
  const auto memory = session->open_allocator({.device = "host", .pageable = true});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Code::kInvalidArgument);
  EXPECT_NE(memory.error().message.find("memfd"), std::string::npos) << memory.error().message;
}

// A process that says it has unmapped a region may keep it mapped all the same.
TEST_F(HostOfDriver, ARegionIsReadByOthersAndChargedUntilTheyHaveEnded) {
  auto writer = publisher_of_store(7);
  auto reader = connected(), other = connected();
  ASSERT_TRUE(succeeded(map(*reader)));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  ASSERT_TRUE(succeeded(map(*other)));
  other->tell({{"do", "store"}});
  EXPECT_EQ(other->child().wait(), -SIGSEGV) << "it is mapped for reading";
  EXPECT_TRUE(succeeded(unmap(*reader)));
  EXPECT_EQ(writer->leave(), 0);
  await_quarantine();
  EXPECT_EQ(reader->leave(), 0);
  await_rest();
}

TEST_F(HostOfDriver, SurvivesTheBrokersRestartAndUpgrade) {
  auto one = allocating();
  const Json block = one->ask({{"do", "allocate"}, {"bytes", kPiece.count}});
  ASSERT_TRUE(succeeded(of_block(*one, "write_block", block)));
  EXPECT_EQ(broker_.stop(), 0);
  broker_.start_again();
  EXPECT_TRUE(succeeded(of_block(*one, "check_block", block)));
  EXPECT_EQ(broker_.upgrade().status, 0);
  EXPECT_TRUE(succeeded(of_block(*one, "check_block", block)));
  EXPECT_TRUE(succeeded(one->ask({{"do", "allocate"}, {"bytes", kPiece.count}})));
  EXPECT_GE(charged(), kPiece);
  EXPECT_EQ(one->leave(), 0);
  await_rest();
}

TEST_F(HostOfDriver, WhatAProcessMayKeepStaysChargedOverARestart) {
  auto writer = publisher_of_store(7);
  auto reader = connected();
  ASSERT_TRUE(succeeded(map(*reader)));
  EXPECT_TRUE(succeeded(unmap(*reader)));
  EXPECT_EQ(writer->leave(), 0);
  await_quarantine();
  broker_.kill();
  broker_.start_again();
  await_quarantine();
  EXPECT_EQ(reader->leave(), 0);
  await_rest();
}

TEST_F(HostOfDriver, StaysOfItsKindWhileMemoryIsLent) {
  auto one = allocating();
  const Json block = one->ask({{"do", "allocate"}, {"bytes", kPiece.count}});
  ASSERT_TRUE(succeeded(of_block(*one, "write_block", block)));
  ASSERT_EQ(broker_.upgrade().status, 0);
  broker_.reload(kFiles);
  EXPECT_NE(broker_.log().find("[host] kind stays 'driver'"), std::string::npos);
  ASSERT_EQ(broker_.upgrade().status, 0);
  EXPECT_NE(broker_.log().find("stays of kind \"driver\""), std::string::npos);
  EXPECT_TRUE(succeeded(of_block(*one, "check_block", block)));
  EXPECT_TRUE(succeeded(one->ask({{"do", "allocate"}, {"bytes", kPiece.count}})));
  EXPECT_EQ(one->leave(), 0);
  await_rest();
}

// ---- A driver that has no such memory ----

struct Refusal {
  const char* fault;
  const char* words;
  friend void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.fault; }
};

struct HostOfDriverRefused : HostOfDriver, testing::WithParamInterface<Refusal> {
  HostOfDriverRefused() : HostOfDriver(kFiles) {}
};

TEST_P(HostOfDriverRefused, TheStoreIsFilesAndTheLogSaysWhy) {
  broker_.kill();  // its simulated machine stays
  ASSERT_TRUE(sim::add_fault(*sim::load_machine(broker_.driver_folder()), GetParam().fault));
  broker_.start_again(kOfDriver);
  EXPECT_NE(broker_.log().find(GetParam().words), std::string::npos) << broker_.log();
  EXPECT_NE(broker_.log().find("kind \"memfd\" instead of \"driver\""), std::string::npos);
  auto one = connected();
  EXPECT_TRUE(succeeded(
      one->ask({{"do", "open_allocator"}, {"device", "host"}, {"pageable", true}, {"idle_ms", 0}})));
  EXPECT_TRUE(succeeded(one->ask({{"do", "allocate"}, {"bytes", kPiece.count}})));
  EXPECT_EQ(one->leave(), 0);
  await_rest();
}

INSTANTIATE_TEST_SUITE_P(Drivers, HostOfDriverRefused,
                         testing::Values(Refusal{"cuMemCreate kill times 1", "crashed the program"},
                                         Refusal{"cuMemExportToShareableHandle fail NOT_SUPPORTED times 1",
                                                 "CUDA_ERROR_NOT_SUPPORTED"}));

}  // namespace
}  // namespace gpumem::test
