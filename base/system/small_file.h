#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace gpumem {

/// The first `most` bytes of `file`, by plain system calls: for code that runs inside any program. Nothing:
/// it cannot be read. Sets errno.
std::optional<std::string> read_small_file(const std::filesystem::path& file, std::size_t most = 65536);

}  // namespace gpumem
