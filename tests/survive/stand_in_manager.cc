#include "tests/survive/stand_in_manager.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "base/packet.h"
#include "base/system/unix_socket.h"
#include "tests/support/broker_process.h"

namespace gpumem::test {
namespace {

constexpr int kFirstPassed = 3;  // as sd_listen_fds(3) says

// Of `KEY=VALUE` in lines.
std::string value_of(const std::string& said, const std::string& key) {
  const auto found = ("\n" + said).find("\n" + key + "=");
  if (found == std::string::npos) return {};
  const auto begin = found + key.size() + 1;
  return said.substr(begin, said.find('\n', begin) - begin);
}

// Another number for it, out of the way of those that it is passed as, that the next program gets.
UniqueFd inherited(const UniqueFd& descriptor) {
  constexpr int kOutOfTheWay = 4096;
  return UniqueFd(::fcntl(descriptor.get(), F_DUPFD, kOutOfTheWay));
}

}  // namespace

StandInManager::StandInManager()
    : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  EXPECT_EQ(bind_unix(socket_.get(), environment().second), 0);
  prepare();
  thread_ = std::thread([this] { listen(); });
}

StandInManager::~StandInManager() {
  EXPECT_EQ(::eventfd_write(stop_.get(), 1), 0);
  thread_.join();
}

std::pair<std::string, std::string> StandInManager::environment() const {
  return {"NOTIFY_SOCKET", (folder_ / "notify").string()};
}

// The interpreter knows the broker's pid before that runs. A shell has a descriptor of its own among so many.
void StandInManager::prepare() {
  passed_.clear();
  std::string numbers, names;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, descriptor] : kept_) {
    passed_.push_back(inherited(descriptor));
    numbers += std::to_string(passed_.back().get()) + ",";
    names += (names.empty() ? "" : ":") + name;
  }
  std::string text = "#!/usr/bin/python3 -IS\nimport os, sys\n";
  text += "for number, passed in enumerate([" + numbers + "], " + std::to_string(kFirstPassed) + "):\n";
  text += "    os.dup2(passed, number)\n    os.close(passed)\n";
  if (!passed_.empty())
    text += "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='" + std::to_string(passed_.size()) +
            "', LISTEN_FDNAMES='" + names + "')\n";
  const std::string broker = gpumemd_program().string();
  write_file(program(), text + "os.execv('" + broker + "', ['" + broker + "'] + sys.argv[1:])\n");
  std::filesystem::permissions(program(), std::filesystem::perms::owner_all);
}

std::set<std::string> StandInManager::names() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> names;
  for (const auto& [name, descriptor] : kept_) names.insert(name);
  return names;
}

// Memory of the simulated driver is a file.
Bytes StandInManager::bytes() const {
  const std::lock_guard lock(mutex_);
  Bytes sum;
  for (const auto& [name, descriptor] : kept_) {
    struct stat file {};
    EXPECT_EQ(::fstat(descriptor.get(), &file), 0);
    sum += Bytes{static_cast<std::uint64_t>(file.st_size)};
  }
  return sum;
}

void StandInManager::listen() {
  constexpr std::size_t kMostBytes = 4096, kMostDescriptors = 4;
  for (;;) {
    std::array<pollfd, 2> waiting{pollfd{socket_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    ::poll(waiting.data(), waiting.size(), -1);
    if (waiting[1].revents != 0) return;
    auto packet = receive_packet(socket_.get(), kMostBytes, kMostDescriptors);
    if (packet) take(packet->bytes, std::move(packet->descriptors));
  }
}

// A barrier is a descriptor that is closed once what came before it is done: here.
void StandInManager::take(const std::string& said, std::vector<UniqueFd> descriptors) {
  const std::string name = value_of(said, "FDNAME");
  const std::lock_guard lock(mutex_);
  if (value_of(said, "FDSTORE") == "1" && !descriptors.empty())
    kept_.emplace(name, std::move(descriptors.front()));
  if (value_of(said, "FDSTOREREMOVE") == "1") kept_.erase(name);
}

}  // namespace gpumem::test
