#include "base/system/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/system/unique_fd.h"

namespace gpumem {

std::optional<std::string> read_small_file(const std::filesystem::path& file, std::size_t most) {
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!opened.valid()) return std::nullopt;
  std::string text;
  std::array<char, 16384> part;
  while (text.size() < most) {
    const ssize_t count = ::read(opened.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace gpumem
