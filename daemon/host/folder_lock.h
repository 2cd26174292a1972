#pragma once
#include <filesystem>
#include <string_view>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Whether the files of `folder` are those that the broker and its administrator put there: in a folder that
/// all users may write to, anybody replaces a journal, a socket or the quotas. A folder that is not there yet
/// is fine. Errors  kFailedPrecondition: others may write to it; the message says what to do.
Result<void> check_closed(const std::filesystem::path& folder, std::string_view option);

/// Locks `folder` for this process, by flock(2) on a file in it, as long as the descriptor lives. The file
/// belongs to the caller alone (mode 0600), so no other user can open it and take the lock.
/// `option`  of gpumemd that names another folder, for the message.
/// Errors    kAlreadyExists: the lock is held; the message names the process that the kernel names.
///           kFailedPrecondition: the file is no regular file.
Result<UniqueFd> lock_folder(const std::filesystem::path& folder, std::string_view option);

}  // namespace gpumem::host
