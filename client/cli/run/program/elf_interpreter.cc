#include "client/cli/run/program/elf_interpreter.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace gpumem::cli {
namespace {

constexpr std::size_t kLongestPath = 4096;

std::filesystem::path found_in_path(const std::string& program) {
  const char* const folders = std::getenv("PATH");
  if (program.find('/') != std::string::npos || folders == nullptr) return program;
  std::istringstream list(folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    auto file = std::filesystem::path(folder) / program;
    std::error_code failed;
    if (std::filesystem::is_regular_file(file, failed) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

/// `value`, as it stands at `offset`.
template <class Value>
bool read_at(std::istream& file, std::uint64_t offset, Value& value) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&value), sizeof value));
}

}  // namespace

std::string elf_interpreter(const std::string& program) {
  std::error_code failed;
  const std::filesystem::path path = found_in_path(program);
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, failed))
    file.open(path, std::ios::binary);  // a pipe would block
  Elf64_Ehdr header{};
  if (!read_at(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return {};
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!read_at(file, header.e_phoff + i * sizeof part, part)) return {};
    if (part.p_type != PT_INTERP) continue;
    std::string name(std::min<std::uint64_t>(part.p_filesz, kLongestPath), '\0');
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    file.read(name.data(), static_cast<std::streamsize>(name.size()));
    return name.c_str();  // up to its end, or what there is of it
  }
  return {};
}

}  // namespace gpumem::cli
