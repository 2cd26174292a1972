#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/system/unique_fd.h"
#include "client/cli/check/check.h"
#include "cuda/driver.h"
#include "cuda/nvml.h"

namespace gpumem::cli {
namespace {

using State = Finding::State;

std::string kernel_version(const std::string& folder) {
  auto nvml = cuda::Nvml::open(folder);
  if (!nvml) return {};
  auto version = (*nvml)->driver_version();
  return version ? ", driver " + *version : std::string();
}

Finding check_nodes() {
  glob_t nodes{};
  ::glob("/dev/nvidia*", 0, nullptr, &nodes);
  std::string closed;
  for (std::size_t i = 0; i < nodes.gl_pathc; ++i) {
    const std::string node = nodes.gl_pathv[i];
    const bool numbered = node.find_last_not_of("0123456789") == std::string("/dev/nvidia").size() - 1;
    const bool needed = numbered || node == "/dev/nvidiactl" || node == "/dev/nvidia-uvm";
    if (needed && ::access(node.c_str(), R_OK | W_OK) != 0) closed += " " + node;
  }
  const bool any = nodes.gl_pathc > 0;
  ::globfree(&nodes);
  if (!any) {
    return {"device_nodes", State::kFail, "there are no device nodes /dev/nvidia*",
            "load the driver (nvidia-smi), or pass the devices to this container (docker run --gpus all)"};
  }
  if (closed.empty()) return {"device_nodes", State::kOk, "/dev/nvidia* can be opened", ""};
  return {"device_nodes", State::kFail, "you may not open" + closed,
          "ask the administrator: the nodes' group, or mode 0666"};
}

}  // namespace

Result<std::string> read_proc_file(pid_t pid, const std::string& name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> part{};
  ssize_t count = file.valid() ? 0 : -1;
  while (file.valid() && (count = ::read(file.get(), part.data(), part.size())) > 0)
    text.append(part.data(), static_cast<std::size_t>(count));
  if (count == 0) return text;
  if (errno == ENOENT || errno == ESRCH)
    return Error{Code::kNotFound, "there is no process " + std::to_string(pid)};
  if (errno == EACCES || errno == EPERM) {
    return Error{Code::kPermissionDenied,
                 "you may not read " + path +
                     (::geteuid() == 0 ? ": in a container, root needs the capability CAP_SYS_PTRACE for "
                                         "that; else a security module forbids it"
                                       : ": ask as the user of the process, or as root")};
  }
  return errno_error(errno, "cannot read " + path);
}

namespace {

constexpr const char* kMark = "gpumem_shim_version";

// `ADDRESSES PERMISSIONS OFFSET DEVICE INODE PATH`.
struct Mapping {
  bool is_code = false;
  unsigned long long offset = 0;  // in the file
  std::string path;
};

std::optional<Mapping> parse_mapping(const std::string& line) {
  Mapping mapping;
  char permissions[8] = {};
  int path_at = 0;
  const int known =
      std::sscanf(line.c_str(), "%*s %7s %llx %*s %*s %n", permissions, &mapping.offset, &path_at);
  if (known != 2 || path_at == 0) return std::nullopt;
  mapping.is_code = permissions[2] == 'x';
  mapping.path = line.substr(static_cast<std::size_t>(path_at));
  return mapping;
}

// The name of exports is in the file's table of dynamic strings, which stripping leaves. The file may be the
// process's own: one that is mapped and becomes shorter would end this program, and a huge one keep it busy.
std::optional<bool> exports_mark(const std::filesystem::path& file) {
  constexpr std::size_t kPart = 1 << 20;
  constexpr off_t kMost = off_t{1} << 30;
  const std::string_view mark(kMark, std::strlen(kMark) + 1);
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!opened.valid() || ::fstat(opened.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0 ||
      info.st_size > kMost)
    return std::nullopt;
  std::string content(mark.size() + kPart, '\0');  // the end of the part before, and a part
  for (off_t at = 0; at < info.st_size;) {
    const ssize_t count = ::pread(opened.get(), content.data() + mark.size(), kPart, at);
    if (count <= 0) return std::nullopt;
    const auto end = mark.size() + static_cast<std::size_t>(count);
    if (std::string_view(content).substr(0, end).find(mark) != std::string_view::npos) return true;
    std::copy_n(content.begin() + count, mark.size(), content.begin());
    at += count;
  }
  return false;
}

}  // namespace

std::vector<MappedDriver> drivers_in(std::string_view maps) {
  std::vector<MappedDriver> drivers;
  std::map<std::string, unsigned long long> code;  // where the code that is counted begins in the file
  while (!maps.empty()) {
    const std::size_t end = std::min(maps.find('\n'), maps.size());
    const auto mapping = parse_mapping(std::string(maps.substr(0, end)));
    maps.remove_prefix(std::min(end + 1, maps.size()));
    if (!mapping) continue;
    const std::string name = mapping->path.substr(mapping->path.rfind('/') + 1);
    const bool is_management = name.starts_with("libnvidia-ml.so");
    if (!is_management && !name.starts_with("libcuda.so")) continue;
    auto known = std::ranges::find(drivers, mapping->path, &MappedDriver::path);
    if (known == drivers.end()) known = drivers.insert(known, {mapping->path, 0, is_management});
    if (!mapping->is_code) continue;
    const auto begin = code.try_emplace(mapping->path, mapping->offset).first->second;
    if (mapping->offset == begin) ++known->copies;  // every copy maps each part of the code once
  }
  return drivers;
}

Result<std::vector<MappedDriver>> mapped_drivers(pid_t pid) {
  const auto maps = read_proc_file(pid, "maps");
  if (!maps) return maps.error();
  std::vector<MappedDriver> drivers = drivers_in(*maps);
  const std::string root = "/proc/" + std::to_string(pid) + "/root";  // the process may run in a container
  for (MappedDriver& one : drivers) one.is_drop_in = exports_mark(root + one.path);
  return drivers;
}

void check_driver(const std::string& folder, std::vector<Finding>& findings) {
  if (folder.empty()) findings.push_back(check_nodes());
  auto driver = cuda::Driver::open(folder);
  if (!driver) {
    findings.push_back({"driver", State::kFail, driver.error().message, ""});
    return;
  }
  findings.push_back(
      {"driver", State::kOk,
       "CUDA " + (*driver)->version() + kernel_version(folder) + (folder.empty() ? "" : ", in " + folder),
       ""});
  for (const cuda::Device& device : (*driver)->devices()) {
    findings.push_back({"device", State::kOk,
                        std::to_string(device.ordinal) + ": " + to_string(device.uuid) + " " + device.name +
                            ", " + to_string(device.total),
                        ""});
  }
}

}  // namespace gpumem::cli
