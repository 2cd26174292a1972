#include "client/cli/system/exported_names.h"

#include <elf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/system/small_file.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kLargestLibrary = std::size_t{1} << 30;

/// A piece of the file as a value of type T. Nothing: the file ends before that.
template <class T>
std::optional<T> at(std::string_view file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::optional<Elf64_Shdr> section(std::string_view file, const Elf64_Ehdr& header, std::uint64_t index) {
  return at<Elf64_Shdr>(file, header.e_shoff + index * sizeof(Elf64_Shdr));
}

bool is_exported_function(const Elf64_Sym& symbol) {
  const auto type = ELF64_ST_TYPE(symbol.st_info);
  const auto binding = ELF64_ST_BIND(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC) &&
         (binding == STB_GLOBAL || binding == STB_WEAK);
}

void add_names(std::string_view file, const Elf64_Shdr& symbols, const Elf64_Shdr& texts,
               std::set<std::string>& names) {
  for (std::uint64_t done = 0; done + sizeof(Elf64_Sym) <= symbols.sh_size; done += sizeof(Elf64_Sym)) {
    const auto symbol = at<Elf64_Sym>(file, symbols.sh_offset + done);
    if (!symbol || !is_exported_function(*symbol)) continue;
    const std::uint64_t begin = texts.sh_offset + symbol->st_name;
    const std::size_t end = begin < file.size() ? file.find('\0', begin) : file.npos;
    if (end != file.npos) names.emplace(file.substr(begin, end - begin));
  }
}

}  // namespace

Result<std::set<std::string>> exported_functions(const std::filesystem::path& file) {
  const auto content = read_small_file(file, kLargestLibrary);
  if (!content) return errno_error(errno, "cannot read " + file.string());
  const auto header = at<Elf64_Ehdr>(*content, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return Error{Code::kInvalidArgument, file.string() + " is no library of 64 bits"};
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto symbols = section(*content, *header, i);
    if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
    if (const auto texts = section(*content, *header, symbols->sh_link))
      add_names(*content, *symbols, *texts, names);
  }
  return names;
}

Result<std::set<std::string>> missing_functions(const std::filesystem::path& real,
                                                const std::filesystem::path& drop_in,
                                                const std::string& prefix) {
  auto theirs = exported_functions(real);
  if (!theirs) return theirs.error();
  const auto ours = exported_functions(drop_in);
  if (!ours) return ours.error();
  std::erase_if(*theirs, [&](const std::string& name) {
    const bool is_drivers = name.starts_with(prefix) && name.size() > prefix.size() &&
                            name[prefix.size()] >= 'A' && name[prefix.size()] <= 'Z';
    return !is_drivers || ours->contains(name);
  });
  return theirs;
}

}  // namespace gpumem::cli
