#include "tests/support/pid_namespaces.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sstream>

#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

constexpr const char* kUnshare = "/usr/bin/unshare";

// A broker lives and has the folder.
bool is_locked(const std::string& folder) {
  const UniqueFd lock(::open((folder + "/private/gpumemd.lock").c_str(), O_RDWR | O_CLOEXEC));
  return !lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

}  // namespace

bool has_unshare() { return ::geteuid() == 0 && std::filesystem::exists(kUnshare); }

bool has_pidfs() {
  constexpr auto kMagic = 0x50494446;
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  struct statfs system {};
  return ::fstatfs(pidfd.get(), &system) == 0 && system.f_type == kMagic;
}

ChildOptions in_own_namespace(const std::filesystem::path& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--pid", "--fork", "--kill-child", "--mount-proc", program.string()});
  return {.program = kUnshare, .arguments = std::move(arguments)};
}

std::filesystem::path contained_gpumemd(const TemporaryFolder& folder) {
  const ChildOptions inner = in_own_namespace(gpumemd_program(), {});
  std::string line = "#!/bin/sh\nexec " + inner.program.string();
  for (const std::string& argument : inner.arguments) line += " '" + argument + "'";
  const std::filesystem::path script = folder / "contained-gpumemd";
  write_file(script, line + " \"$@\"\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  return script;
}

void kill_contained(BrokerProcess& broker) {
  broker.kill();
  EXPECT_TRUE(eventually([&] { return !is_locked(broker.folder()); }));
}

pid_t pid_of_contained(const ClientProcess& client) {
  const std::string pid = std::to_string(client.pid());
  std::istringstream children(read_file("/proc/" + pid + "/task/" + pid + "/children"));
  pid_t child = 0;
  return children >> child ? child : client.pid();
}

}  // namespace gpumem::test
