#include "client/cli/run/program/run_environment.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace gpumem::cli {
namespace {

bool has_shim(const std::filesystem::path& folder) {
  return ::access((folder / kShimLibrary).c_str(), R_OK) == 0;
}

/// Beside this program: where it is installed, else in its build tree. The former if there is neither.
std::filesystem::path folder_beside(const std::filesystem::path& program) {
  const auto seen_from_here = [&](const char* path) {
    return (program.parent_path() / path).lexically_normal();
  };
  const auto installed = seen_from_here("../lib/gpumem/shim");
  const auto built = seen_from_here("../shim/lib");
  return !has_shim(installed) && has_shim(built) ? built : installed;
}

constexpr std::size_t kLongestPath = 4096;

std::filesystem::path found_in_path(const std::string& program) {
  const char* const folders = std::getenv("PATH");
  if (program.find('/') != std::string::npos || folders == nullptr) return program;
  std::istringstream list(folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    auto file = std::filesystem::path(folder) / program;
    std::error_code failed;
    if (std::filesystem::is_regular_file(file, failed) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

/// `value`, as it stands at `offset`.
template <class Value>
bool read_at(std::istream& file, std::uint64_t offset, Value& value) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&value), sizeof value));
}

/// The loader that the executable `program` names for itself (PT_INTERP). Empty: it is linked statically, is
/// no such file, or cannot be read.
/// `program`  as execvp(3) takes it: a path, or a name that is looked for in PATH.
std::string elf_interpreter(const std::string& program) {
  std::error_code failed;
  const std::filesystem::path path = found_in_path(program);
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, failed))
    file.open(path, std::ios::binary);  // a pipe would block
  Elf64_Ehdr header{};
  if (!read_at(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return {};
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!read_at(file, header.e_phoff + i * sizeof part, part)) return {};
    if (part.p_type != PT_INTERP) continue;
    std::string name(std::min<std::uint64_t>(part.p_filesz, kLongestPath), '\0');
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    file.read(name.data(), static_cast<std::streamsize>(name.size()));
    return name.c_str();  // up to its end, or what there is of it
  }
  return {};
}

}  // namespace

Result<std::filesystem::path> shim_folder() {
  std::error_code failed;
  const char* named = ::secure_getenv("GPUMEM_SHIM_FOLDER");
  const bool is_named = named != nullptr && *named != '\0';
  const auto folder = is_named ? std::filesystem::absolute(named, failed)
                               : folder_beside(std::filesystem::read_symlink("/proc/self/exe", failed));
  if (!failed && has_shim(folder)) return folder;
  return Error{
      Code::kNotFound,
      "there is no drop-in driver at " + (folder / kShimLibrary).string() +
          (is_named ? ": correct GPUMEM_SHIM_FOLDER"
                    : ": install the whole package gpumem, or name its folder by GPUMEM_SHIM_FOLDER")};
}

// See ld.so(8); it also replaces what a dollar sign stands before.
Result<void> check_loadable(const std::filesystem::path& folder, bool preloaded) {
  const char* const separators = preloaded ? ": \t\n$" : ":;$";
  const std::size_t at = folder.native().find_first_of(separators);
  if (at == std::string::npos) return {};
  const char* const variable = preloaded ? "LD_PRELOAD" : "LD_LIBRARY_PATH";
  return Error{Code::kFailedPrecondition,
               "the drop-in driver is in " + folder.string() + ", and no path with '" + folder.native()[at] +
                   "' in it can stand in " + variable + ": name another path of it by GPUMEM_SHIM_FOLDER"};
}

Result<void> check_c_library(const std::string& program) {
  const std::string loader = elf_interpreter(program);
  if (!std::filesystem::path(loader).filename().string().starts_with("ld-musl")) return {};
  return Error{
      Code::kFailedPrecondition,
      "'" + program + "' is made for the C library musl (" + loader +
          "), with which neither the drop-in driver nor NVIDIA's works: take a build for glibc, or run "
          "it without gpumem"};
}

namespace {

struct FrameworkSetting {
  const char* name;
  const char* value;
};

// What makes frameworks fit a slice. Nothing that the user has set is changed.
constexpr std::array<FrameworkSetting, 4> kFrameworkSettings{{
    // TensorFlow and JAX take their whole limit at the first allocation. Let them take what they need.
    {"TF_FORCE_GPU_ALLOW_GROWTH", "true"},
    {"XLA_PYTHON_CLIENT_PREALLOCATE", "false"},
    // TensorFlow leaves up to 1,800 MiB of what is free alone, for contexts and libraries: nearly all of a
    // slice of 2 GiB. The broker charges contexts itself, so only what cuBLAS and cuDNN allocate is left.
    {"TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "128"},
    // Before CUDA 12.2, contexts held every kernel of every library: hundreds of MiB that are charged.
    {"CUDA_MODULE_LOADING", "LAZY"},
}};

// `path` in front of the entries of `list`, which are separated by colons. Not twice, and nothing empty: that
// would be the current folder.
std::string in_front(const std::string& path, const std::string& list) {
  std::string joined = path;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(':', begin), list.size());
    const std::string entry = list.substr(begin, end - begin);
    if (!entry.empty() && entry != path) joined += ":" + entry;
    begin = end + 1;
  }
  return joined;
}

std::string wait_text(std::chrono::milliseconds wait) {
  const auto count = wait.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + "s" : std::to_string(count) + "ms";
}

void load_shim(Environment& environment, const ShimSettings& settings) {
  if (!settings.preload) {
    std::string& path = environment["LD_LIBRARY_PATH"];
    path = in_front(settings.shim_folder.string(), path);
    return;
  }
  std::string& preloaded = environment["LD_PRELOAD"];
  std::error_code no_matter;
  for (const char* name : {kShimNvml, kShimLibrary}) {
    if (std::filesystem::exists(settings.shim_folder / name, no_matter))
      preloaded = in_front((settings.shim_folder / name).string(), preloaded);
  }
}

}  // namespace

Environment with_shim(Environment base, const ShimSettings& settings) {
  load_shim(base, settings);
  base["GPUMEM_RUNTIME_DIR"] = settings.runtime_folder.string();
  if (!settings.driver_folder.empty())
    base.emplace("GPUMEM_REAL_LIBCUDA", (settings.driver_folder / kShimLibrary).string());
  if (settings.job != 0) base["GPUMEM_JOB"] = std::to_string(settings.job);
  if (settings.limit) base["GPUMEM_LIMIT"] = std::to_string(settings.limit->count);
  if (settings.wait) base["GPUMEM_WAIT"] = wait_text(*settings.wait);
  if (!settings.name.empty()) base["GPUMEM_NAME"] = settings.name;
  if (!settings.device.empty()) base["CUDA_VISIBLE_DEVICES"] = settings.device;
  if (settings.optional) base["GPUMEM_OPTIONAL"] = "1";
  if (settings.show_device) base["GPUMEM_SHOW_DEVICE"] = "1";
  if (settings.framework_settings) {
    for (const FrameworkSetting& one : kFrameworkSettings) base.emplace(one.name, one.value);
  }
  return base;
}

}  // namespace gpumem::cli
