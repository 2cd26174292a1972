#pragma once
#include <sys/un.h>

#include <array>
#include <filesystem>
#include <string>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// Lets a command be the process of a session that this process speaks for. The kernel tells the broker who
/// has connected a socket: the new process connects it before it becomes the command, and hands it over.
class SessionHandover {
 public:
  /// `program`  what the session's process is to be called. Errors  kInvalidArgument (path too long),
  /// errno's.
  static Result<SessionHandover> make(const std::filesystem::path& runtime_folder,
                                      const std::string& program);

  /// In the new process: connects, hands over, and waits. False: it must not become the command.
  /// Nothing but system calls.
  bool in_command() const;
  /// The socket that the new process has connected. Errors  as client::connect_error.   Blocks.
  Result<UniqueFd> receive();
  /// Whether the new process becomes the command.
  void release(bool begins);

 private:
  SessionHandover() = default;

  std::filesystem::path socket_;
  sockaddr_un address_{};
  std::array<char, 16> name_{};  // as much as the kernel keeps
  UniqueFd own_, theirs_;
};

}  // namespace gpumem::cli
