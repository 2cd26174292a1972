// One broker a folder; what others have there is theirs.
#include "daemon/host/state/runtime_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/unix_socket.h"
#include "daemon/host/state/folder_lock.h"
#include "proto/lane.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;

UniqueFd bound_socket(const std::filesystem::path& path, int type) {
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind_unix(socket.get(), path), 0);
  return socket;
}

Error refusal(const std::filesystem::path& folder, const std::string& group = "") {
  auto claimed = RuntimeFolder::claim(folder, group);
  EXPECT_FALSE(claimed);
  return claimed ? Error{} : claimed.error();
}

struct RuntimeFolderTest : testing::Test {
  test::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary / "run";
};

TEST_F(RuntimeFolderTest, IsMadeAndHeldByOneBroker) {
  {
    auto first = RuntimeFolder::claim(folder, "");
    ASSERT_TRUE(first) << first.error().message;
    const Error error = refusal(folder);
    EXPECT_EQ(error.code, Code::kAlreadyExists);
    EXPECT_THAT(error.message, HasSubstr("process " + std::to_string(::getpid()) + " ("));
  }
  EXPECT_TRUE(RuntimeFolder::claim(folder, "")) << "free again";
}

TEST_F(RuntimeFolderTest, SocketsTakeNoDescriptorsUnlessTheKernelIsTooOld) {
  auto claimed = RuntimeFolder::claim(folder, "");
  const auto old = claimed->listen_on_lane({.pass_rights = false});
  ASSERT_TRUE(old);
  EXPECT_TRUE(old->takes_descriptors);
  const auto api = claimed->listen_on_api();
  ASSERT_TRUE(api);
  const int off = 0;
  const bool known = ::setsockopt(api->fd.get(), SOL_SOCKET, 83, &off, sizeof off) == 0;
  EXPECT_EQ(api->takes_descriptors, !known);
}

TEST_F(RuntimeFolderTest, SocketOfTheMetricsIsOfAGroupOfItsOwn) {
  auto claimed = RuntimeFolder::claim(folder, "");
  ASSERT_TRUE(claimed->listen_on_metrics(::getegid()));
  EXPECT_EQ(std::filesystem::status(folder / kMetricsSocketName).permissions(), std::filesystem::perms(0660));
}

TEST_F(RuntimeFolderTest, SecondBrokerDoesNotTakeTheFirstOnesSockets) {
  auto first = RuntimeFolder::claim(folder, "");
  ASSERT_TRUE(first);
  const auto socket = first->listen_on_lane();
  ASSERT_TRUE(socket);
  refusal(folder);
  EXPECT_TRUE(std::filesystem::exists(folder / kLaneSocketName));
}

TEST_F(RuntimeFolderTest, LosesItsSocketsWithItsBroker) {
  {
    auto claimed = RuntimeFolder::claim(folder, "");
    ASSERT_TRUE(claimed);
    ASSERT_TRUE(claimed->listen_on_lane());
    RuntimeFolder moved = std::move(*claimed);
    EXPECT_TRUE(std::filesystem::exists(folder / kLaneSocketName));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / kLaneSocketName));
}

TEST_F(RuntimeFolderTest, IsClearedOfSocketsThatNobodyListensOn) {
  std::filesystem::create_directory(folder);
  bound_socket(folder / kLaneSocketName, SOCK_SEQPACKET);
  bound_socket(folder / kApiSocketName, SOCK_STREAM);
  auto claimed = RuntimeFolder::claim(folder, "");
  ASSERT_TRUE(claimed) << claimed.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder / kApiSocketName));
  EXPECT_TRUE(claimed->listen_on_lane());
}

TEST_F(RuntimeFolderTest, IsNotClearedOfSocketsThatSomebodyListensOn) {
  std::filesystem::create_directory(folder);
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    for (const char* name : {kLaneSocketName, kApiSocketName}) {
      const UniqueFd foreign = bound_socket(folder / name, type);
      ASSERT_EQ(::listen(foreign.get(), 1), 0);
      const Error error = refusal(folder);
      EXPECT_EQ(error.code, Code::kAlreadyExists);
      EXPECT_THAT(error.message, HasSubstr("another program listens on"));
      EXPECT_TRUE(std::filesystem::remove(folder / name)) << "it is still there";
    }
  }
}

TEST_F(RuntimeFolderTest, IsNotClearedOfOtherThings) {
  std::filesystem::create_directory(folder);
  test::write_file(folder / kApiSocketName, "precious");
  EXPECT_THAT(refusal(folder).message, HasSubstr("is no socket"));
  EXPECT_EQ(test::read_file(folder / kApiSocketName), "precious");
  std::filesystem::remove(folder / kApiSocketName);
  std::filesystem::create_symlink("/etc/passwd", folder / kLaneSocketName);
  EXPECT_THAT(refusal(folder).message, HasSubstr("is no socket"));
}

TEST_F(RuntimeFolderTest, LockBelongsToTheBrokerAloneEvenIfItWasLeftToAll) {
  std::filesystem::create_directories(private_folder_of(folder));
  test::write_file(lock_file_of(folder), "4711");
  ::chmod((lock_file_of(folder)).c_str(), 0666);
  const auto claimed = RuntimeFolder::claim(folder, "");
  ASSERT_TRUE(claimed) << claimed.error().message;
  EXPECT_EQ(std::filesystem::status(lock_file_of(folder)).permissions(), std::filesystem::perms(0600));
}

TEST_F(RuntimeFolderTest, NamesTheKernelsHolderOfTheLock) {
  std::filesystem::create_directories(private_folder_of(folder));
  test::write_file(lock_file_of(folder), "4711");
  const UniqueFd held(::open((lock_file_of(folder)).c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  const Error error = refusal(folder);
  EXPECT_THAT(error.message, HasSubstr("process " + std::to_string(::getpid()) + " ("));
  EXPECT_THAT(error.message, testing::Not(HasSubstr("4711")));
}

TEST_F(RuntimeFolderTest, IsNotLockedThroughASymlink) {
  std::filesystem::create_directories(private_folder_of(folder));
  test::write_file(temporary / "victim", "precious");
  std::filesystem::create_symlink(temporary / "victim", lock_file_of(folder));
  refusal(folder);
  EXPECT_EQ(test::read_file(temporary / "victim"), "precious");
}

TEST_F(RuntimeFolderTest, TakesSocketsThatWerePassedAndLeavesThemToTheNextBroker) {
  std::filesystem::create_directory(folder);
  UniqueFd socket = bound_socket(folder / kLaneSocketName, SOCK_SEQPACKET);
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  for (int broker = 0; broker < 2; ++broker) {
    auto claimed = RuntimeFolder::claim(folder, "", {.lane = PassedSocket{UniqueFd(::dup(socket.get()))}});
    ASSERT_TRUE(claimed) << claimed.error().message;
    const auto lane = claimed->listen_on_lane();
    ASSERT_TRUE(lane);
    EXPECT_TRUE(lane->shared);
    EXPECT_TRUE(lane->takes_descriptors) << "connections may have come before this broker";
    EXPECT_NE(::fcntl(lane->fd.get(), F_GETFL) & O_NONBLOCK, 0);
    const auto api = claimed->listen_on_api();
    ASSERT_TRUE(api) << "the one that was not passed is made";
    EXPECT_FALSE(api->shared);
  }
  EXPECT_TRUE(std::filesystem::exists(folder / kLaneSocketName));
  EXPECT_FALSE(std::filesystem::exists(folder / kApiSocketName));
}

TEST_F(RuntimeFolderTest, PassesItsSocketsToTheBrokerThatItsProcessBecomes) {
  PassedDescriptors passed;
  {
    auto claimed = RuntimeFolder::claim(folder, "");
    ASSERT_TRUE(claimed);
    ASSERT_TRUE(claimed->listen_on_lane());
    ASSERT_TRUE(claimed->listen_on_api());
    for (NamedDescriptor& one : claimed->pass_on()) passed.add(one.name, std::move(one.fd), one.stored);
  }
  ASSERT_TRUE(std::filesystem::exists(folder / kLaneSocketName)) << "clients connect to it all the while";
  {
    auto claimed = RuntimeFolder::claim(folder, "", PassedSockets::of(passed));
    ASSERT_TRUE(claimed) << claimed.error().message;
    const auto lane = claimed->listen_on_lane();
    ASSERT_TRUE(lane);
    EXPECT_FALSE(lane->shared);
    ASSERT_TRUE(claimed->listen_on_api());
  }
  EXPECT_FALSE(std::filesystem::exists(folder / kLaneSocketName)) << "they go with the last broker";
  EXPECT_FALSE(std::filesystem::exists(folder / kApiSocketName));
}

TEST_F(RuntimeFolderTest, RefusesPassedSocketsThatAreNotItsOwn) {
  std::filesystem::create_directory(folder);
  const auto refused = [&](const std::filesystem::path& path, int type, bool listens) {
    UniqueFd socket = bound_socket(path, type);
    if (listens && ::listen(socket.get(), 1) != 0) return false;
    auto claimed = RuntimeFolder::claim(folder, "", {.lane = PassedSocket{std::move(socket)}});
    std::filesystem::remove(path);
    return !claimed && claimed.error().code == Code::kFailedPrecondition &&
           claimed.error().message.find((folder / kLaneSocketName).string()) != std::string::npos;
  };
  EXPECT_TRUE(refused(temporary / "elsewhere", SOCK_SEQPACKET, true));
  EXPECT_TRUE(refused(folder / kLaneSocketName, SOCK_STREAM, true));
  EXPECT_TRUE(refused(folder / kLaneSocketName, SOCK_SEQPACKET, false));
}

TEST_F(RuntimeFolderTest, WithANameTooLongForSocketsIsRefused) {
  const Error error = refusal(temporary / std::string(100, 'x'));
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("107 bytes at most"));
}

TEST_F(RuntimeFolderTest, ThatCannotBeMadeIsRefused) {
  EXPECT_EQ(refusal(temporary / "not" / "there").code, Code::kNotFound);
  test::write_file(temporary / "file", "");
  refusal(temporary / "file");
}

TEST_F(RuntimeFolderTest, WithoutPermissionIsRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may do anything; tests/integration tries it as another user";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms(0500));
  EXPECT_EQ(refusal(folder).code, Code::kPermissionDenied);
}

TEST_F(RuntimeFolderTest, OfAnUnknownGroupIsRefusedBeforeAnythingIsMade) {
  const Error error = refusal(folder, "no-such-group");
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("no group 'no-such-group'"));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(RuntimeFolderTest, LetsItsGroupConnectAndNobodyElse) {
  auto claimed = RuntimeFolder::claim(folder, std::to_string(::getegid()));
  ASSERT_TRUE(claimed);
  ASSERT_TRUE(claimed->listen_on_lane());
  struct stat found {};
  ASSERT_EQ(::stat((folder / kLaneSocketName).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660U);
  EXPECT_EQ(found.st_gid, ::getegid());
}

}  // namespace
}  // namespace gpumem::host
