#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Checks that only the broker and its administrator can put files into `folder`. In a folder that all users
/// may write to, or that belongs to another, somebody could replace a journal, a socket or the quotas. A
/// missing folder is fine. Errors  kFailedPrecondition: another owns it, or others may write to it; the
/// message says what to do.
Result<void> check_closed(const std::filesystem::path& folder, std::string_view option);

/// The file by which a folder is locked.
inline constexpr const char* kLockName = "gpumemd.lock";

/// Locks `folder` for this process, by flock(2) on `file`, as long as the descriptor lives. The file belongs
/// to the caller alone (mode 0600), so no other user can open it and take the lock.
/// `option`  of gpumemd that names another folder, for the message.
/// Errors    kAlreadyExists: the lock is held; the message names the process that the kernel names.
///           kFailedPrecondition: the file is no regular file.
Result<UniqueFd> lock_folder(const std::filesystem::path& folder, const std::filesystem::path& file,
                             std::string_view option);

/// The part of a runtime folder that containers do not see: journal and lock.
std::filesystem::path private_folder_of(const std::filesystem::path& runtime_folder);
/// Where the lock of a runtime folder is: lines of text, the first of which is the holder's pid.
std::filesystem::path lock_file_of(const std::filesystem::path& runtime_folder);
/// Adds a line for people, and for who waits for something of the holder. What cannot be written is left out.
void tell_in_lock(int lock, const std::string& line);
/// The process that holds the lock of a runtime folder, as the kernel says. None: nobody, or it does not say.
std::optional<long> holder_of_lock(const std::filesystem::path& runtime_folder);

}  // namespace gpumem::host
