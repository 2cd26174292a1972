#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpumem/result.h"
#include "shm/device_page.h"

namespace gpumem::host {

/// The page of each device (shm/device_page.h), as files of the runtime folder. Users who may connect to the
/// API's socket may read them: they tell what its listings tell. The files end with this object. If the
/// broker dies, they are not locked any more, and readers do not trust them.
class DevicePages {
 public:
  /// `folder`   the runtime folder, in which the API's socket is. `devices`  UUIDs, in the policy's order.
  /// Errors  of the system: the folder cannot be written to, has no room, or has no access lists.
  static Result<DevicePages> create(const std::filesystem::path& folder,
                                    const std::vector<std::string>& devices);
  DevicePages(DevicePages&&) = default;
  DevicePages& operator=(DevicePages&&) = delete;
  ~DevicePages();

  /// `listing`  its pids' namespace and the broker's own pid are filled in here. Blocks  never.
  void publish(std::size_t device, DeviceListing& listing);

 private:
  struct Unmap {
    void operator()(DevicePage* page) const;
  };
  struct Page {
    std::filesystem::path path;
    std::unique_ptr<DevicePage, Unmap> mapped;  ///< keeps the file open, and so locked, without a descriptor
  };

  DevicePages() = default;
  static Result<Page> make(const std::filesystem::path& path, const std::filesystem::path& socket);

  std::vector<Page> pages_;
};

}  // namespace gpumem::host
