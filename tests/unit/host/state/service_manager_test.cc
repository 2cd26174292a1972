// What systemd is told.
#include "daemon/host/state/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "base/system/unique_fd.h"
#include "base/system/unix_socket.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

struct ToldServiceManager : testing::Test {
  ToldServiceManager() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const std::string path = (folder_ / "notify").string();
    EXPECT_EQ(bind_unix(socket_.get(), path), 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~ToldServiceManager() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
  }
  std::string heard() {
    std::array<char, 1024> text{};
    const ssize_t count = ::recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return count < 0 ? "nothing" : std::string(text.data(), static_cast<std::size_t>(count));
  }

  test::TemporaryFolder folder_;
  UniqueFd socket_;
  const ServiceManager manager_;
};

TEST_F(ToldServiceManager, HearsOfStartAndEnd) {
  manager_.ready();
  EXPECT_EQ(heard(), "READY=1");
  manager_.stopping();
  EXPECT_THAT(heard(), testing::StartsWith("STOPPING=1\nSTATUS="));
}

TEST_F(ToldServiceManager, HearsWhenAReloadBegan) {
  manager_.reloading();
  EXPECT_THAT(heard(), testing::MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+"));
}

TEST_F(ToldServiceManager, HearsThatTheBrokerLivesAndHow) {
  manager_.alive("2 requests wait");
  EXPECT_EQ(heard(), "WATCHDOG=1\nSTATUS=2 requests wait");
}

TEST_F(ToldServiceManager, SaysWhetherItWatchesThisProcess) {
  EXPECT_EQ(manager_.watchdog_timeout().count(), 0);
  ::setenv("WATCHDOG_USEC", "20000000", 1);
  EXPECT_EQ(manager_.watchdog_timeout(), std::chrono::seconds(20));
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(manager_.watchdog_timeout().count(), 0) << "it watches another process";
}

TEST_F(ToldServiceManager, KeepsADescriptorByTheNameOfItsLease) {
  ASSERT_EQ(manager_.store(), &manager_);
  manager_.keep(LeaseId{47}, socket_.get());
  EXPECT_EQ(heard(), "FDSTORE=1\nFDPOLL=0\nFDNAME=lease-47");
}

// The barrier is a descriptor that the manager closes when it has read what came before.
TEST_F(ToldServiceManager, IsWaitedForWhenItForgets) {
  std::thread manager([&] {
    pollfd told{socket_.get(), POLLIN, 0};
    for (std::string said; said.find("BARRIER=1") == std::string::npos; said = heard()) ::poll(&told, 1, -1);
  });
  EXPECT_TRUE(manager_.forget(std::array{LeaseId{47}, LeaseId{48}}));
  manager.join();
}

TEST_F(ToldServiceManager, ThatCannotBeToldHasNotForgotten) {
  ::setenv("NOTIFY_SOCKET", (folder_ / "nobody").c_str(), 1);
  EXPECT_FALSE(manager_.forget(std::array{LeaseId{47}}));
}

TEST(ServiceManager, WithoutOneNobodyIsToldAndNothingIsKept) {
  ::unsetenv("NOTIFY_SOCKET");
  const ServiceManager manager;
  EXPECT_EQ(manager.store(), nullptr);
  manager.ready();
}

}  // namespace
}  // namespace gpumem::host
