// The kernel's own word for which pod a process is in, where the test may make the kubelet's cgroups.
#include <fstream>
#include <sstream>

#include "tests/pods/fixture.h"

namespace gpumem::test {
namespace {

// A folder of any hierarchy of cgroups, of either version, that takes processes; empty: there is none that
// may be written.
std::filesystem::path writable_hierarchy() {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, folder, kind, options;
    words >> device >> folder >> kind >> options;
    // In that of cpuset a new cgroup takes nobody before it has processors.
    if ((kind != "cgroup" && kind != "cgroup2") || options.find("cpuset") != options.npos) continue;
    if (::access((folder + "/cgroup.procs").c_str(), W_OK) == 0) return folder;
  }
  return {};
}

// `kubepods/burstable/podUID/CONTAINER`, removed with it if this made them.
class KubeletsCgroup {
 public:
  explicit KubeletsCgroup(const std::filesystem::path& hierarchy) {
    std::filesystem::path at = hierarchy;
    for (const std::string& name : {std::string("kubepods"), std::string("burstable"),
                                    std::string("pod") + kAnna, std::string(64, 'c')}) {
      at /= name;
      std::error_code failed;
      if (std::filesystem::create_directory(at, failed)) made_.push_back(at);
    }
    container_ = at;
  }
  ~KubeletsCgroup() {
    for (auto one = made_.rbegin(); one != made_.rend(); ++one) ::rmdir(one->c_str());
  }
  KubeletsCgroup(const KubeletsCgroup&) = delete;
  KubeletsCgroup& operator=(const KubeletsCgroup&) = delete;

  bool take(pid_t pid) const {
    std::ofstream procs(container_ / "cgroup.procs");
    procs << pid << std::flush;
    return static_cast<bool>(procs);
  }

 private:
  std::vector<std::filesystem::path> made_;
  std::filesystem::path container_;
};

class Cgroups : public BrokerTest {
 protected:
  Cgroups() : BrokerTest({.config = pods_config()}) {}
};

TEST_F(Cgroups, OfTheKubeletSayWhichPodAProcessIsIn) {
  const std::filesystem::path hierarchy = writable_hierarchy();
  if (hierarchy.empty())
    GTEST_SKIP() << "no hierarchy of cgroups may be written: nobody can be put into a pod";
  const KubeletsCgroup cgroup(hierarchy);
  ClientProcess client(broker_.folder());
  if (!cgroup.take(client.pid())) GTEST_SKIP() << "the cgroup under " << hierarchy << " takes no process";
  const Json connected = client.connect();
  EXPECT_TRUE(failed_with(connected, "PERMISSION_DENIED"));
  EXPECT_NE(connected.at("message").get<std::string>().find(kAnna), std::string::npos) << connected.dump();
  client.kill();
  ClientProcess elsewhere(broker_.folder());
  EXPECT_TRUE(succeeded(elsewhere.connect()));
}

}  // namespace
}  // namespace gpumem::test
