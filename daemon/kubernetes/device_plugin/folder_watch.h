#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Calls on a thread of its own whenever something has come into a folder, has been replaced there, or has
/// gone. One call may stand for several changes.
class FolderWatch {
 public:
  /// `on_change` must not block for long. Errors  of inotify(7), which name the folder.
  static Result<std::unique_ptr<FolderWatch>> start(const std::filesystem::path& folder,
                                                    std::function<void()> on_change);
  /// Waits for the call that is under way.
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

 private:
  FolderWatch(UniqueFd events, UniqueFd stop, std::function<void()> on_change);
  void loop();

  UniqueFd events_;
  UniqueFd stop_;
  std::function<void()> on_change_;
  std::thread thread_;
};

}  // namespace gpumem::kubernetes
