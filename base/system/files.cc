#include "base/system/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "base/system/unique_fd.h"

namespace gpumem {

Result<std::string> read_text(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return errno_error(errno, "cannot read " + file.string());
  std::string text;
  std::array<char, 4096> piece;
  while (stream.read(piece.data(), piece.size()), stream.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (stream.bad()) return errno_error(errno, "cannot read " + file.string());  // a folder, for one
  return text;
}

Result<void> write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return errno_error(written == 0 ? ENOSPC : errno, "cannot write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> write_durably(const std::filesystem::path& file, std::string_view text) {
  const UniqueFd opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!opened.valid()) return errno_error(errno, "cannot make " + file.string());
  Result<void> written = write_all(opened.get(), text);
  if (written && ::fsync(opened.get()) != 0) written = errno_error(errno, "cannot write");
  if (written) return {};
  ::unlink(file.c_str());
  return written.error().in(file.string());
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid() || ::fsync(opened.get()) != 0)
    return errno_error(errno, "cannot bring " + folder.string() + " to the disk");
  return {};
}

}  // namespace gpumem
