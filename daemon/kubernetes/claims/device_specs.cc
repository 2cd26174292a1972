#include "daemon/kubernetes/claims/device_specs.h"

#include <sys/stat.h>

#include "base/system/files.h"
#include "daemon/kubernetes/http/whole_file.h"
#include "proto/lane.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::string_view kKind = "gpumem.dev/slice";
constexpr std::string_view kFilePrefix = "gpumem.dev-slice-";
constexpr std::string_view kFileEnding = ".json";

// Where containers have them, wherever the host does: what an image or a pod says of them holds on every
// node.
constexpr const char* kRuntimeInside = "/run/gpumemd";
constexpr const char* kShimInside = "/usr/lib/gpumem/shim";

// A runtime puts these variables over what the image and the pod say: it can neither add to a variable nor
// leave one alone that is set. LD_LIBRARY_PATH is set by many images, which lose their libraries without it;
// LD_PRELOAD by next to none. The file /etc/ld.so.preload would also reach programs that clear their
// environment. But it would reach every program of the container without a GPU, too, and images with another
// C library.
void add_injection(ContainerEdits& edits, Injection injection) {
  const std::string folder = kShimInside;
  if (injection == Injection::kPreload)
    edits.variables.push_back({"LD_PRELOAD", folder + "/libcuda.so.1:" + folder + "/libnvidia-ml.so.1"});
  if (injection == Injection::kLibraryPath) edits.variables.push_back({"LD_LIBRARY_PATH", folder});
}

// As gpumem run sets them: without them TensorFlow and JAX take the whole limit at once.
void add_framework_settings(ContainerEdits& edits) {
  edits.variables.push_back({"TF_FORCE_GPU_ALLOW_GROWTH", "true"});
  edits.variables.push_back({"XLA_PYTHON_CLIENT_PREALLOCATE", "false"});
  edits.variables.push_back({"TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "128"});
  edits.variables.push_back({"CUDA_MODULE_LOADING", "LAZY"});
}

// The group that may connect to the broker; 0: root's, or everybody may.
gid_t group_of(const std::filesystem::path& runtime_folder) {
  struct stat found = {};
  if (::stat((runtime_folder / "lane.sock").c_str(), &found) != 0) return 0;
  return (found.st_mode & S_IWOTH) != 0 ? 0 : found.st_gid;
}

Json to_json(const ContainerEdits::Mount& mount) {
  Json options = Json::array({"ro", "nosuid", "nodev", "rbind", "rprivate"});
  if (!mount.programs) options.push_back("noexec");
  return {
      {"hostPath", mount.host.string()}, {"containerPath", mount.inside}, {"options", std::move(options)}};
}

}  // namespace

std::string DeviceSpecs::id(const std::string& uid) { return std::string(kKind) + "=" + uid; }

std::filesystem::path DeviceSpecs::file_of(const std::string& uid) const {
  return options_.folder / (std::string(kFilePrefix) + uid + std::string(kFileEnding));
}

ContainerEdits DeviceSpecs::edits() const {
  ContainerEdits edits;
  edits.variables.push_back({"GPUMEM_RUNTIME_DIR", kRuntimeInside});
  // The folder, not the sockets: those are others after a restart of the broker. Connecting needs no writable
  // mount.
  edits.mounts.push_back({.host = options_.runtime_folder, .inside = kRuntimeInside, .programs = false});
  edits.mounts.push_back({.host = options_.runtime_folder / kEmptyFolderName,
                          .inside = std::string(kRuntimeInside) + "/" + kPrivateFolderName,
                          .programs = false});
  if (options_.injection != Injection::kNone) {
    add_injection(edits, options_.injection);
    edits.mounts.push_back({.host = options_.shim_folder, .inside = kShimInside, .programs = true});
  }
  if (options_.framework_settings) add_framework_settings(edits);
  edits.group = group_of(options_.runtime_folder);
  return edits;
}

Json DeviceSpecs::specification(const std::string& uid) const {
  const ContainerEdits wanted = edits();
  Json variables = Json::array();
  for (const ContainerEdits::Variable& one : wanted.variables)
    variables.push_back(one.name + "=" + one.value);
  Json mounts = Json::array();
  for (const ContainerEdits::Mount& one : wanted.mounts) mounts.push_back(to_json(one));
  Json edits = {{"env", std::move(variables)}, {"mounts", std::move(mounts)}};
  const gid_t group = wanted.group;
  if (group != 0) edits["additionalGids"] = Json::array({group});
  // Older runtimes refuse a version that they do not know, so the newest is only asked for where it is
  // needed.
  return {{"cdiVersion", group != 0 ? "0.7.0" : "0.6.0"},
          {"kind", kKind},
          {"devices", Json::array({Json{{"name", uid}, {"containerEdits", std::move(edits)}}})}};
}

Result<void> DeviceSpecs::write(const std::string& uid) const {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return errno_error(error.value(), "cannot make " + options_.folder.string());
  const std::string text = specification(uid).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (auto there = read_text(file_of(uid)); there && *there == text) return {};
  return replace_file(file_of(uid), text, 0644);
}

Result<void> DeviceSpecs::remove(const std::string& uid) const { return remove_file(file_of(uid)); }

std::vector<std::string> DeviceSpecs::list() const {
  std::vector<std::string> uids;
  std::error_code no_matter;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, no_matter)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kFilePrefix) && name.ends_with(kFileEnding))
      uids.push_back(name.substr(kFilePrefix.size(), name.size() - kFilePrefix.size() - kFileEnding.size()));
  }
  return uids;
}

}  // namespace gpumem::kubernetes
