#pragma once

namespace gpumem {

/// Names of the two sockets in the broker's runtime folder.
inline constexpr const char* kLaneSocketName = "lane.sock";
inline constexpr const char* kApiSocketName = "api.sock";
inline constexpr const char* kDefaultRuntimeFolder = "/run/gpumemd";

/// Folders in it. The first has what is the broker's alone: root in a container that has the runtime folder
/// could read it, and lock it. So the second, which is empty, covers it there.
inline constexpr const char* kPrivateFolderName = "private";
inline constexpr const char* kEmptyFolderName = "empty";

}  // namespace gpumem
