// The pages for monitors: who may read them, and that a dead broker's are not believed.
#include "daemon/host/state/device_pages.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "base/system/unique_fd.h"
#include "proto/lane.h"
#include "tests/support/in_child.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

constexpr gid_t kGroup = 10'000;
constexpr const char* kDevice = "GPU-0";

struct DevicePagesTest : testing::Test {
  /// The socket is only looked at, so a file will do.
  void make(mode_t socket_mode, gid_t group = ::getegid()) {
    pages.reset();
    const std::filesystem::path socket = folder / kApiSocketName;
    test::write_file(socket, "");
    EXPECT_EQ(::chown(socket.c_str(), static_cast<uid_t>(-1), group), 0);
    EXPECT_EQ(::chmod(socket.c_str(), socket_mode), 0);
    auto made = DevicePages::create(folder.path(), {kDevice});
    ASSERT_TRUE(made) << made.error().message;
    pages.emplace(std::move(*made));
  }
  bool exists() const { return std::filesystem::exists(file); }
  /// Whether a user of these groups, and of nothing else, may open the page.
  bool opens(std::vector<gid_t> groups, int flags = O_RDONLY) const {
    return test::in_child([&] {
      return ::setgroups(groups.size(), groups.data()) == 0 && ::setgid(54321) == 0 && ::setuid(54321) == 0 &&
             ::open(file.c_str(), flags | O_CLOEXEC) >= 0;
    });
  }
  bool is_locked() const {
    const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    struct flock lock {};
    lock.l_type = F_RDLCK;
    return ::fcntl(opened.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
  }

  test::TemporaryFolder folder;
  std::filesystem::path file = folder / "GPU-0.page";
  std::optional<DevicePages> pages;
};

TEST_F(DevicePagesTest, AreReadByThoseWhoMayConnect) {
  const auto mode_for = [this](mode_t socket_mode) {
    make(socket_mode);
    struct stat found {};
    EXPECT_EQ(::stat(file.c_str(), &found), 0);
    return found.st_mode & 0777U;
  };
  EXPECT_EQ(mode_for(0660), 0640U);
  EXPECT_EQ(mode_for(0666), 0644U);
  EXPECT_EQ(mode_for(0600), 0600U);
}

TEST_F(DevicePagesTest, OfASocketOfAnotherGroupAreReadByThatGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a socket to another group";
  make(0660, kGroup);
  EXPECT_TRUE(opens({kGroup}));
  EXPECT_FALSE(opens({kGroup}, O_RDWR));
  EXPECT_FALSE(opens({kGroup + 1}));
}

TEST_F(DevicePagesTest, AreLockedWhileTheirBrokerLives) {
  EXPECT_TRUE(test::in_child([this] {
    make(0660);
    return is_locked();
  }));
  EXPECT_TRUE(exists()) << "it was killed";
  EXPECT_FALSE(is_locked());
  make(0660);
  EXPECT_TRUE(is_locked());
  pages.reset();
  EXPECT_FALSE(exists());
}

TEST_F(DevicePagesTest, ThatCannotBeMadeLeaveNothing) {
  EXPECT_FALSE(DevicePages::create(folder.path(), {kDevice})) << "there is no socket";
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace gpumem::host
