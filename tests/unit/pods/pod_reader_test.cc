// Which pod a process is in, as its files say.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/host/sockets/peer.h"
#include "daemon/host/system/process.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/pods/claims.h"

namespace gpumem::host {
namespace {

struct PodReaderTest : testing::Test {
  void put(pid_t pid, const std::string& cgroup, const std::string& status) {
    const auto process = folder / std::to_string(pid);
    std::filesystem::create_directories(process);
    test::write_file(process / "cgroup", cgroup);
    test::write_file(process / "status", status);
  }
  PodReader::Found found(const std::string& cgroup, const std::string& status) {
    put(7, cgroup, status);
    return reader.find(7);
  }
  test::TemporaryFolder folder;
  PodReader reader{.processes = folder.path()};
  const std::string in_pod = "0::/kubepods/pod" + pods::kAnna + "/c\n";
};

TEST_F(PodReaderTest, FindsThePodAndWhetherItSharesThePids) {
  const auto contained = found(in_pod, "Name:\tx\nNSpid:\t7\t1\nNSpgid:\t7\t1\n");
  EXPECT_EQ(contained.pod, pods::kAnna);
  EXPECT_TRUE(contained.contained);
  EXPECT_FALSE(contained.unknown);
  EXPECT_FALSE(found(in_pod, "Name:\tx\nNSpid:\t7\nNSpgid:\t7\n").contained);
  EXPECT_TRUE(found(in_pod, "Name:\tx\n").contained) << "nothing says that it shares them";
  EXPECT_TRUE(found(in_pod, "NSpid:\t7").contained) << "a process may be named so";
}

TEST_F(PodReaderTest, FindsNoneWhereThereIsNone) {
  const auto none = found("0::/user.slice\n", "Name:\tx\nNSpid:\t7\t1\n");
  EXPECT_EQ(none.pod, "");
  EXPECT_FALSE(none.contained) << "only pods are held against their PIDs";
  EXPECT_FALSE(none.unknown);
}

TEST_F(PodReaderTest, SaysWhereNothingIsShown) {
  EXPECT_TRUE(reader.find(0).unknown);
  EXPECT_TRUE(reader.find(8).unknown);
  EXPECT_TRUE(found("", "").unknown) << "it has ended";
}

TEST_F(PodReaderTest, TakesNoProcessThatMayBeInAPodForAUserOfTheMachine) {
  const auto unclear = found("0::/kubepods/podX/c\n", "Name:\tx\nNSpid:\t7\n");
  EXPECT_TRUE(unclear.unknown);
  EXPECT_TRUE(unclear.contained);
}

// The first version of cgroups shows the root for a task that ends.
TEST_F(PodReaderTest, AsksTheThreadsOfAProcessWhoseFirstOneHasEnded) {
  const std::string ending = "7 (a) b) Z 1 7 7 0 -1 4228364 0 0\n",
                    living = "8 (x) S 1 7 7 0 -1 4194304 0 0\n";
  put(7, "4:memory:/\n", "NSpid:\t7\n");
  test::write_file(folder / "7" / "stat", ending);
  const auto alone = reader.find(7);
  EXPECT_TRUE(alone.unknown);
  EXPECT_TRUE(alone.contained);
  for (const std::string number : {"7", "8"}) {
    const auto task = folder / "7" / "task" / number;
    std::filesystem::create_directories(task);
    test::write_file(task / "cgroup", number == "7" ? "4:memory:/\n" : in_pod);
    test::write_file(task / "status", "Name:\tx\nNSpid:\t8\t2\n");
    test::write_file(task / "stat", number == "7" ? ending : living);
  }
  const auto of_thread = reader.find(7);
  EXPECT_EQ(of_thread.pod, pods::kAnna);
  EXPECT_TRUE(of_thread.contained);
  test::write_file(folder / "7" / "task" / "8" / "cgroup", "4:memory:/\n");
  const auto none = reader.find(7);
  EXPECT_EQ(none.pod, "");
  EXPECT_FALSE(none.unknown);
  EXPECT_FALSE(none.contained);
}

TEST_F(PodReaderTest, LooksBelowTheRootThatIsConfigured) {
  reader.cgroup_root = "/kubelet";
  EXPECT_EQ(found(in_pod, "").pod, "");
  EXPECT_EQ(found("0::/kubelet/kubepods/pod" + pods::kAnna + "/c\n", "").pod, pods::kAnna);
}

TEST_F(PodReaderTest, FindsNobodyInAPodWhereNobodyLooks) {
  reader.looks = false;
  const auto in = found(in_pod, "Name:\tx\nNSpid:\t7\t1\n");
  EXPECT_EQ(in.pod, "");
  EXPECT_FALSE(in.contained);
  EXPECT_FALSE(found("0::/kubepods/podX/c\n", "").unknown);
  EXPECT_FALSE(reader.find(0).unknown);
}

TEST_F(PodReaderTest, ReadsPodsOfPeersAndOfObservedProcesses) {
  put(::getpid(), in_pod, "");
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const UniqueFd one(ends[0]), two(ends[1]);
  const auto peer = identify_peer(one.get(), {.pods = reader});
  ASSERT_TRUE(peer) << peer.error().message;
  EXPECT_EQ(peer->peer.pod, pods::kAnna);
  EXPECT_TRUE(peer->peer.contained);
  EXPECT_NE(in_words(peer->peer).find("pod " + pods::kAnna), std::string::npos);
  EXPECT_FALSE(Administrators(peer->peer.gids.front()).include(peer->peer));
  const auto process = find_process(::getpid(), reader);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->in.pod, pods::kAnna);
}

TEST_F(PodReaderTest, KnowsThatThisProcessIsShownByTheKernel) {
  EXPECT_FALSE(PodReader().find(::getpid()).unknown);
}

}  // namespace
}  // namespace gpumem::host
