#include "daemon/host_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/system/small_file.h"
#include "cuda/memory.h"
#include "daemon/host/driver/host_file.h"
#include "daemon/host/system/numa_nodes.h"
#include "daemon/run_program.h"

namespace gpumem {
namespace {

// Starting the driver takes seconds on a machine of many GPUs.
constexpr std::chrono::seconds kLongestTry{30};

// The last line of what it has said.
std::string last_words(int output) {
  std::array<char, 4096> text{};
  const ssize_t size = ::read(output, text.data(), text.size());
  std::string words(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  while (words.ends_with('\n')) words.pop_back();
  return words.substr(words.rfind('\n') + 1);
}

// By this program, as try_host_node().
Result<void> try_node(const std::filesystem::path& driver, int node) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error(errno, "pipe");
  const UniqueFd output(ends[0]), input(ends[1]);
  std::vector<std::string> arguments{"gpumemd", "--try-host-node", std::to_string(node)};
  if (!driver.empty()) arguments.insert(arguments.end(), {"--driver-dir", driver.string()});
  const auto status = run_program("/proc/self/exe", std::move(arguments), kLongestTry, input.get());
  if (!status) return status.error();
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return {};
  if (!WIFSIGNALED(*status)) return Error{Code::kFailedPrecondition, last_words(output.get())};
  return Error{Code::kFailedPrecondition, "the driver crashed the program that tried it (" +
                                              std::string(::strsignal(WTERMSIG(*status))) + ")"};
}

// Whether what the broker before has lent of the host store is files. Nothing: nothing is lent.
std::optional<bool> lent_files(const host::Journal::Content* before,
                               const std::map<LeaseId, host::KeptDescriptor>& kept) {
  if (before == nullptr) return std::nullopt;
  for (const auto& [id, lease] : before->checkpoint.leases) {
    const auto descriptor = kept.find(id);
    if (descriptor == kept.end() || before->devices.at(lease.device) != kHostStore) continue;
    std::error_code ignored;
    const auto link = "/proc/self/fd/" + std::to_string(descriptor->second.fd.get());
    return std::filesystem::read_symlink(link, ignored)
        .string()
        .starts_with(std::string("/memfd:") + host::kHostFileName);
  }
  return std::nullopt;
}

std::vector<int> usable_nodes(const std::filesystem::path& driver) {
  std::vector<int> nodes;
  for (const int node : host::nodes_with_memory(host::kNumaNodes)) {
    const auto tried = try_node(driver, node);
    if (tried) {
      nodes.push_back(node);
      continue;
    }
    spdlog::warn("the driver gives the host store no memory of NUMA node {}: {}", node,
                 tried.error().message);
  }
  return nodes;
}

// The driver's promise that new memory of the host has no old bytes: its option
// NVreg_InitializeSystemMemoryAllocations.
bool is_memory_cleared() {
  const std::string options = read_small_file("/proc/driver/nvidia/params").value_or("");
  return options.find("InitializeSystemMemoryAllocations: 0") == options.npos;
}

Result<void> use_node(const std::filesystem::path& folder, int node) {
  const auto driver = cuda::Driver::open(folder);
  if (!driver) return driver.error();
  const Bytes size = cuda::host_device().granularity;
  auto made = cuda::Allocation::create_on_host(**driver, node, size);
  if (!made) return made.error();
  const auto descriptor = made->export_descriptor();
  if (!descriptor) return descriptor.error();
  std::vector<cuda::Allocation> imported;
  auto import = cuda::Allocation::import(**driver, descriptor->get(), size);
  if (!import) return import.error();
  imported.push_back(std::move(*import));
  const auto addresses = cuda::Reservation::create(**driver, size, size);
  if (!addresses) return addresses.error();
  const auto mapped = cuda::Mapping::create(**driver, addresses->base(), imported, cuda::kHostOrdinal);
  if (!mapped) return mapped.error();
  auto* const bytes = reinterpret_cast<volatile char*>(mapped->at());
  for (std::size_t i = 0; i < size.count; ++i)
    if (bytes[i] != 0) return Error{Code::kFailedPrecondition, "new memory of the driver is not zero"};
  std::memset(reinterpret_cast<void*>(mapped->at()), 1, size.count);
  return {};
}

}  // namespace

void choose_host_memory(Machine& machine, const host::Config& config, const std::filesystem::path& driver,
                        const host::Journal::Content* before,
                        const std::map<LeaseId, host::KeptDescriptor>& kept) {
  const bool is_wanted = config.host && config.host->is_of_driver;
  const auto files = lent_files(before, kept);
  if (files && *files == is_wanted) {
    spdlog::warn(
        "memory of the host store is lent, so the store stays of kind \"{}\" until the broker starts without "
        "any",
        *files ? "memfd" : "driver");
  }
  if (files ? *files : !is_wanted) return;
  auto& store = *std::ranges::find_if(machine.devices, &host::DeviceFacts::is_host);
  std::vector<int> nodes;
  if (is_memory_cleared()) {
    nodes = usable_nodes(driver);
  } else {
    spdlog::warn(
        "the driver does not clear new memory of the host: start it with "
        "NVreg_InitializeSystemMemoryAllocations=1");
  }
  if (!nodes.empty() || files) {
    machine.host_nodes = std::move(nodes);
    store.device.name = "host memory of the driver";
    return;
  }
  spdlog::warn(
      "the host store is of kind \"memfd\" instead of \"driver\", so each process pins its memory by itself. "
      "The "
      "driver has to be of CUDA 12.6 or newer; a container needs --cap-add SYS_NICE, or a seccomp profile "
      "that allows set_mempolicy and mbind. Then restart the broker, or remove kind from [host]");
}

int try_host_node(const std::filesystem::path& driver, int node) {
  const rlimit none{};
  ::setrlimit(RLIMIT_CORE, &none);
  const auto used = use_node(driver, node);
  if (used) return 0;
  std::fprintf(stderr, "%s\n", used.error().message.c_str());
  return 1;
}

}  // namespace gpumem
