// The host store: memory of the machine that is lent as a device's, to real processes.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "gpumem/session.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

const std::string kStore = std::string(kSomeSpare) + "[host]\nsize = \"256MiB\"\n";
constexpr Bytes kPiece = mebibytes(16);

struct HostStore : BrokerTest {
  explicit HostStore(const std::string& more = {}) : BrokerTest({.config = kStore + more}) {}

  v1::DeviceStatus store() const { return broker_.device(1); }
  Bytes charged() const {
    const v1::DeviceStatus status = store();
    return {status.offered() + status.active() + status.returning() + status.quarantined()};
  }
  bool is_whole() const { return charged().is_zero(); }
  std::unique_ptr<ClientProcess> client(int idle_ms = 100) {
    auto client = std::make_unique<ClientProcess>(broker_.folder(), ClientOptions{});
    EXPECT_TRUE(succeeded(client->connect("test", client_timeout_)));
    EXPECT_TRUE(succeeded(client->ask(
        {{"do", "open_allocator"}, {"device", "host"}, {"pageable", true}, {"idle_ms", idle_ms}})));
    return client;
  }
  static Json allocate(ClientProcess& client, Bytes bytes = kPiece) {
    return client.ask({{"do", "allocate"}, {"bytes", bytes.count}});
  }
  /// In the test's own process, which no broker ends.
  Result<Allocator> own_memory() {
    auto session = Session::connect({.runtime_folder = broker_.folder(), .timeout = client_timeout_});
    if (!session) return session.error();
    session_.emplace(std::move(*session));
    return session_->open_allocator({.device = "host", .idle = {}, .pageable = true});
  }

  std::optional<Session> session_;
};

TEST_F(HostStore, MemoryIsChargedWhileItIsLentAndComesBack) {
  EXPECT_EQ(store().uuid(), "host");
  EXPECT_EQ(store().pool(), mebibytes(256).count);
  auto one = client();
  const Json block = allocate(*one);
  ASSERT_TRUE(succeeded(block));
  EXPECT_GE(charged(), kPiece);
  EXPECT_EQ(broker_.device(0).free(), kPool.count) << "no device is charged";
  EXPECT_TRUE(succeeded(one->ask({{"do", "free"}, {"at", block["at"]}, {"bytes", kPiece.count}})));
  EXPECT_TRUE(eventually([&] { return is_whole(); }));
  EXPECT_EQ(one->leave(), 0);
}

TEST_F(HostStore, AKilledClientLeavesNoCharge) {
  auto one = client();
  ASSERT_TRUE(succeeded(allocate(*one)));
  one->kill();
  EXPECT_TRUE(eventually([&] { return is_whole(); }));
}

TEST_F(HostStore, ReturnedMemoryIsNobodysThoughItsClientKeepsItMapped) {
  auto memory = own_memory();
  ASSERT_TRUE(memory) << memory.error().message;
  const auto at = memory->allocate(kPiece);
  ASSERT_TRUE(at) << at.error().message;
  std::memset(reinterpret_cast<void*>(*at), 1, kPiece.count);
  // A second mapping of the first page, as a program that lies would keep it.
  void* const kept = ::mremap(reinterpret_cast<void*>(*at), 0, 4096, MREMAP_MAYMOVE);
  ASSERT_NE(kept, MAP_FAILED);
  ASSERT_TRUE(memory->deallocate(*at, kPiece));
  ASSERT_TRUE(memory->trim());
  EXPECT_TRUE(eventually([&] { return is_whole(); }));
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  EXPECT_LT(::write(channel[1], kept, 1), 0) << "the kernel finds nothing there either";
  ::close(channel[0]);
  ::close(channel[1]);
  EXPECT_EQ(::munmap(kept, 4096), 0);
}

TEST_F(HostStore, StaysUntilItsMemoryIsBackThoughTheFileHasItNoMore) {
  auto one = client(60'000);
  ASSERT_TRUE(succeeded(allocate(*one)));
  broker_.kill();
  broker_.start_again(kSomeSpare);
  EXPECT_TRUE(eventually([&] { return broker_.status().devices_size() == 2 && charged() >= kPiece; }));
  EXPECT_EQ(one->leave(), 0);
  EXPECT_TRUE(eventually([&] { return is_whole(); }));
}

TEST_F(HostStore, AForkedChildHasNothingAtItsParentsAddresses) {
  auto memory = own_memory();
  ASSERT_TRUE(memory) << memory.error().message;
  const auto at = memory->allocate(kPiece);
  ASSERT_TRUE(at) << at.error().message;
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 64; ++i) {
      const auto mine = reinterpret_cast<std::uint64_t>(
          ::mmap(nullptr, kPiece.count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      if (mine < *at + kPiece.count && *at < mine + kPiece.count) ::_exit(1);
    }
    *reinterpret_cast<volatile char*>(*at) = 1;
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  ASSERT_TRUE(memory->deallocate(*at, kPiece));
}

TEST_F(HostStore, SurvivesTheBrokersRestartAndUpgrade) {
  auto one = client(60'000);
  const Json block = allocate(*one);
  ASSERT_TRUE(succeeded(block));
  const Json fill{{"at", block["at"]}, {"bytes", kPiece.count}, {"value", 7}};
  const auto ask = [&](const char* what) {
    Json command = fill;
    command["do"] = what;
    return one->ask(command);
  };
  ASSERT_TRUE(succeeded(ask("write_block")));
  EXPECT_EQ(broker_.stop(), 0);
  broker_.start_again();
  EXPECT_TRUE(succeeded(ask("check_block")));
  EXPECT_TRUE(eventually([&] { return charged() >= kPiece; }));
  EXPECT_EQ(broker_.upgrade().status, 0);
  EXPECT_TRUE(succeeded(ask("check_block")));
  ASSERT_TRUE(succeeded(allocate(*one)));
  EXPECT_EQ(one->leave(), 0);
  EXPECT_TRUE(eventually([&] { return is_whole(); }));
}

struct LimitedHostStore : HostStore {
  LimitedHostStore() : HostStore("[default]\nlimit = \"8MiB\"\nhost_limit = \"32MiB\"\n") {}
};

TEST_F(LimitedHostStore, ATenantHasItsHostLimitAndNoMore) {
  auto one = client();
  ASSERT_TRUE(succeeded(allocate(*one))) << "the limit of GPUs is none of the store's";
  const Json refused = allocate(*one, mebibytes(32));
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_NE(refused.dump().find("on host"), std::string::npos) << refused.dump();
  EXPECT_EQ(one->leave(), 0);
}

// The kernel lets the broker make no file as large as a part of the growth.
TEST(HostStoreOfASandbox, TheLogSaysWhatTheSystemRefuses) {
  const TemporaryFolder folder;
  const std::filesystem::path script = folder / "gpumemd";
  write_file(script,
             "#!/bin/sh\ntrap '' XFSZ\nulimit -f 163840\nexec " + gpumemd_program().string() + " \"$@\"\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  BrokerProcess broker({.simulate = "1x64MiB", .config = "[host]\nsize = \"512MiB\"\n", .program = script});
  ClientProcess client(broker.folder());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a", {}, "host")));
  static_cast<void>(client.grow("a", mebibytes(256)));
  EXPECT_NE(broker.log().find("cannot size a file of memory: File too large"), std::string::npos)
      << broker.log();
  EXPECT_EQ(client.leave(), 0);
}

TEST_F(BrokerTest, WithoutAHostStoreTheErrorSaysWhatToAdd) {
  auto session = Session::connect({.runtime_folder = broker_.folder(), .timeout = client_timeout_});
  ASSERT_TRUE(session);
  const auto memory = session->open_allocator({.device = "host", .pageable = true});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Code::kNotFound);
  EXPECT_NE(memory.error().message.find("[host]"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::test
