// What systemd is told, and what it passes.
#include "daemon/host/service_manager.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

struct ToldServiceManager : testing::Test {
  ToldServiceManager() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (folder_ / "notify").string();
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
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

TEST(ServiceManager, WithoutOneNothingIsPassedAndNobodyIsTold) {
  ::unsetenv("NOTIFY_SOCKET");
  auto manager = ServiceManager::of_process();
  EXPECT_FALSE(manager.take(kLaneDescriptor));
  manager.ready();
}

// Descriptors are passed from number 3 on, which only a process of its own has free.
[[noreturn]] void take_what_is_passed() {
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  ::setenv("LISTEN_FDS", "3", 1);
  ::setenv("LISTEN_FDNAMES", "api:lane:extent", 1);
  for (int number = 3; number < 6; ++number) {
    if (::dup2(STDERR_FILENO, number) != number) std::_Exit(1);
  }
  {
    auto manager = ServiceManager::of_process();
    const auto lane = manager.take("lane");
    if (!lane || lane->get() != 4 || manager.take("lane")) std::_Exit(2);
    const auto api = manager.take("api");
    if (!api || api->get() != 3 || manager.take("other")) std::_Exit(3);
    if ((::fcntl(3, F_GETFD) & FD_CLOEXEC) == 0) std::_Exit(4);
  }
  if (::fcntl(5, F_GETFD) >= 0) std::_Exit(5);  // nobody took it
  std::_Exit(0);
}

TEST(ServiceManager, PassesDescriptorsByTheirNames) {
  EXPECT_EXIT(take_what_is_passed(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpumem::host
