// Memory that a client does not let go of stays charged to it; the shared pages cannot be turned against the
// broker.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "shm/pages.h"
#include "tests/integration/hostile_fixture.h"

namespace gpumem::test {
namespace {

constexpr Bytes kSome = mebibytes(40);  // in several extents

// The whole device is lent, so that nothing outside the pool can pass as memory that came back.
struct HeldMemory : HostileTest {
  HeldMemory() : HostileTest({.config = kNoSpare}) {}
  // A session made by hand, with kSome on loan.
  std::unique_ptr<ClientProcess> raw_client() {
    auto one = std::make_unique<ClientProcess>(broker_.folder());
    EXPECT_TRUE(succeeded(one->ask({{"do", "raw_connect"}})));
    EXPECT_TRUE(succeeded(one->ask({{"do", "raw_grow"}, {"bytes", kSome.count}})));
    await("active", [](const v1::DeviceStatus& device) { return device.active(); });
    return one;
  }
  template <class Figure>
  void await(const char* name, Figure figure) {
    EXPECT_TRUE(eventually([&] { return figure(broker_.device()) == kSome.count; })) << name;
  }
  void await_quarantine() {
    await("quarantined", [](const v1::DeviceStatus& device) { return device.quarantined(); });
    const auto sessions = broker_.sessions();
    ASSERT_EQ(sessions.size(), 1U);
    EXPECT_TRUE(sessions[0].ended());
    EXPECT_EQ(sessions[0].slices(0).charged(), kSome.count);
    // When the broker learns that the process has exited, the memory is proved once more.
    EXPECT_TRUE(
        eventually([&] { return broker_.tenant(sessions[0].tenant()).quarantined() == kSome.count; }));
  }
  // Another client gets the rest of the pool, and not a byte more.
  void expect_others_get_the_rest() {
    const Bytes rest = mebibytes(256) - kSome;
    auto other = client();
    EXPECT_TRUE(failed_with(other->grow("a", rest + mebibytes(2)), "RESOURCE_EXHAUSTED"));
    EXPECT_TRUE(succeeded(other->grow("a", rest, std::chrono::seconds(10))));
    EXPECT_EQ(other->leave(), 0);
    EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 1; }));
  }
};

TEST_F(HeldMemory, MappedByAProcessWithoutASessionStaysChargedUntilItExits) {
  auto one = raw_client();
  EXPECT_TRUE(succeeded(one->ask({{"do", "raw_map"}})));
  EXPECT_TRUE(succeeded(one->ask({{"do", "raw_leave"}, {"goodbye", false}})));
  await_quarantine();
  expect_others_get_the_rest();
  EXPECT_EQ(one->leave(), 0);
}

TEST_F(HeldMemory, OfALiarStaysChargedUntilItLetsGo) {
  auto one = raw_client();
  EXPECT_TRUE(succeeded(one->ask({{"do", "raw_map"}})));
  EXPECT_TRUE(succeeded(one->ask({{"do", "raw_leave"}, {"goodbye", true}})));
  await_quarantine();
  expect_others_get_the_rest();
  EXPECT_TRUE(succeeded(one->ask({{"do", "raw_let_go"}})));
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
  EXPECT_TRUE(one->child().running());
}

TEST_F(HeldMemory, PassedToAnotherProcessStaysChargedUntilThatLetsGo) {
  auto one = raw_client();
  std::vector<UniqueFd> passed;
  one->tell({{"do", "raw_descriptors"}});
  EXPECT_TRUE(succeeded(one->answer(&passed)));
  ASSERT_FALSE(passed.empty());
  one->kill();
  await_quarantine();
  expect_others_get_the_rest();
  passed.clear();
}

TEST_F(HeldMemory, PassedOnInPartIsFreedInPart) {
  auto one = raw_client();
  std::vector<UniqueFd> passed;
  one->tell({{"do", "raw_descriptors"}});
  EXPECT_TRUE(succeeded(one->answer(&passed)));
  ASSERT_GT(passed.size(), 1U);
  passed.resize(1);
  one->kill();
  EXPECT_TRUE(eventually([&] {
    const v1::DeviceStatus device = broker_.device();
    return device.quarantined() > 0 && device.quarantined() < kSome.count && device.returning() == 0;
  }));
}

TEST_F(HeldMemory, OfAForkedChildStaysChargedUntilTheChildExits) {
  auto one = raw_client();
  const Json child = one->ask({{"do", "fork_idle"}});
  one->kill();
  await_quarantine();
  EXPECT_EQ(::kill(child["pid"], SIGKILL), 0);
}

TEST_F(HeldMemory, OfTheLibraryIsNotHeldByAForkedChild) {
  auto one = client_with(kSome);
  const Json child = one->ask({{"do", "fork_idle"}});
  one->kill();
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
  EXPECT_EQ(::kill(child["pid"], SIGKILL), 0);
}

TEST_F(HeldMemory, OfAProcessThatBecomesAnotherProgramIsFree) {
  auto one = client_with(kSome);
  one->tell({{"do", "exec"}});
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
  EXPECT_TRUE(one->child().running());
  EXPECT_EQ(one->leave(), 0);
}

struct SharedPages : HostileTest {};

TEST_F(SharedPages, OfTheBrokerCanOnlyBeRead) {
  auto one = session();
  const int page = one.descriptors()[0].get();
  EXPECT_EQ(::mmap(nullptr, kSharedPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0), MAP_FAILED);
  void* const mapped = ::mmap(nullptr, kSharedPageBytes, PROT_READ, MAP_SHARED, page, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(::mprotect(mapped, kSharedPageBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_LT(::pwrite(page, "x", 1, 0), 0);
  EXPECT_NE(::fallocate(page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kSharedPageBytes), 0);
  const UniqueFd again(::open(("/proc/self/fd/" + std::to_string(page)).c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(::mmap(nullptr, kSharedPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0),
            MAP_FAILED);
  ::munmap(mapped, kSharedPageBytes);
}

TEST_F(SharedPages, CannotBeResizedOrUnsealed) {
  auto one = session();
  for (int i = 0; i < 2; ++i) {
    const int page = one.descriptors()[static_cast<std::size_t>(i)].get();
    EXPECT_NE(::ftruncate(page, 0), 0);
    EXPECT_NE(::ftruncate(page, 1 << 20), 0);
    EXPECT_NE(::fcntl(page, F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
  EXPECT_TRUE(one.ask(lane::Ping{}).is(lane::Kind::kDone));
  EXPECT_EQ(broker_.sessions().size(), 1U);
}

TEST_F(SharedPages, FullOfGarbageAreNotBelieved) {
  auto one = session();
  one.open_slice();
  const int page = one.descriptors()[1].get();
  void* const mapped = ::mmap(nullptr, kSharedPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  for (const int byte : {0xff, 0x80, 0x01}) {
    std::memset(mapped, byte, kSharedPageBytes);
    EXPECT_EQ(broker_.sessions()[0].slices(0).in_use(), 0U);
  }
  EXPECT_EQ(::fallocate(page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kSharedPageBytes), 0);
  EXPECT_EQ(broker_.sessions()[0].slices(0).in_use(), 0U);
  ::munmap(mapped, kSharedPageBytes);
}

}  // namespace
}  // namespace gpumem::test
