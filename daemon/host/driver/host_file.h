#pragma once
#include "base/system/unique_fd.h"

// The files of the host store, which are lent to clients.
//
// A file of a private slice can be made shorter. So the broker can take its bytes away from everybody who has
// it, but each client with a writable descriptor can, too: it must not reach other processes.
//
// A shared file never gets shorter, so no client can end others that read it (SIGBUS). It is free when
// nobody but the broker has it. Each client therefore gets a descriptor that is opened for it: the kernel
// counts those, and mappings by them, but not the broker's own descriptor and its duplicates.

namespace gpumem::host {

/// The name of each file of the store: /proc shows it as `/memfd:gpumem-host`.
inline constexpr const char* kHostFileName = "gpumem-host";

/// A descriptor to send to a client.
struct SentDescriptor {
  bool is_held = false;  ///< the broker holds the memory
  int number = -1;       ///< negative: none, or none can be opened now
  UniqueFd opened{};     ///< of `number`, if it was opened for this client
};

/// Seals a file before it is lent. Nobody can add a seal or make the file longer from then on. Returns
/// whether it is a shared one; a file that was sealed before stays what it is.
bool seal_host_file(int file, bool is_private);
/// Whether the file was sealed as a shared one.
bool is_shared_host_file(int file);
/// Opens a file that is open as `file`. Does not wait for anybody. Invalid: errno says why.
UniqueFd open_again(int file, bool read_only);
/// Frees the memory of a file that was returned. False: other processes still have the file, which is shared.
bool free_host_file(int file);

}  // namespace gpumem::host
