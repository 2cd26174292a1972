#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/kubernetes/http/api_values.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// How a container's programs come to load the drop-in driver.
enum class Injection {
  kPreload,      ///< LD_PRELOAD: serves images that set LD_LIBRARY_PATH
  kLibraryPath,  ///< LD_LIBRARY_PATH: serves programs that open libcuda.so, without a version
  kNone,         ///< not at all: the image links libgpumem
};

/// The changes to a container that let it borrow, whether the kubelet or the container runtime applies them.
struct ContainerEdits {
  struct Variable {
    std::string name;
    std::string value;
  };
  struct Mount {
    std::filesystem::path host;
    std::string inside;
    bool programs = false;  ///< programs in it may be executed
  };
  std::vector<Variable> variables;
  std::vector<Mount> mounts;  ///< read-only
  gid_t group = 0;            ///< that may connect to the broker; 0: root's, or everybody may
};

/// The specifications of the Container Device Interface (CDI) for prepared claims: a container runtime
/// applies them to containers that borrow. Each claim has one file and one device, named by its UID, so that
/// names are never reused. A device plugin, which cannot name claims, has one for all. Holds nothing in
/// memory.
class DeviceSpecs {
 public:
  struct Options {
    std::filesystem::path folder = "/var/run/cdi";
    std::filesystem::path runtime_folder = "/run/gpumemd";       ///< of the broker's sockets, on the host
    std::filesystem::path shim_folder = "/usr/lib/gpumem/shim";  ///< of the drop-in driver, on the host
    Injection injection = Injection::kPreload;
    bool framework_settings = true;
  };

  explicit DeviceSpecs(Options options) : options_(std::move(options)) {}

  ContainerEdits edits() const;

  /// The name by which a runtime knows the device of claim `uid`: `gpumem.dev/slice=UID`.
  static std::string id(const std::string& uid);

  /// Writes the specification of claim `uid`, unless it is there as it has to be.
  /// Errors  of the folder and the file, which they name.
  Result<void> write(const std::string& uid) const;

  /// Removes it; that there is none is no error.
  Result<void> remove(const std::string& uid) const;

  /// The claims that have one.
  std::vector<std::string> list() const;

 private:
  std::filesystem::path file_of(const std::string& uid) const;
  Json specification(const std::string& uid) const;

  Options options_;
};

}  // namespace gpumem::kubernetes
