#pragma once
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace gpumem::test {

template <class T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Device code as nvcc makes it, with sections of these names and sizes, and nothing in them.
inline std::string elf_code(const std::vector<std::pair<std::string, std::uint64_t>>& sections) {
  constexpr Elf64_Half kCuda = 190;
  std::string names(1, '\0');
  std::vector<Elf64_Shdr> headers(1);
  for (const auto& [name, size] : sections) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    header.sh_type = SHT_NOBITS;
    header.sh_flags = SHF_ALLOC;
    header.sh_size = size;
    headers.push_back(header);
    names += name + '\0';
  }
  Elf64_Shdr of_names{};
  of_names.sh_name = static_cast<Elf64_Word>(names.size());
  names += std::string(".shstrtab") + '\0';
  of_names.sh_type = SHT_STRTAB;
  of_names.sh_offset = sizeof(Elf64_Ehdr);
  of_names.sh_size = names.size();
  headers.push_back(of_names);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = kCuda;
  header.e_shoff = sizeof header + names.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(headers.size());
  header.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
  std::string image;
  append(image, header);
  image += names;
  for (const Elf64_Shdr& each : headers) append(image, each);
  return image;
}

struct CodeFor {
  bool is_text = false;
  unsigned architecture = 90;
  bool is_compressed = false;
  std::string code{};
};

inline std::string fat_binary(const std::vector<CodeFor>& codes) {
  constexpr std::uint32_t kHeader = 64;
  std::string entries;
  for (const CodeFor& one : codes) {
    const std::size_t begin = entries.size();
    append(entries, static_cast<std::uint16_t>(one.is_text ? 1 : 2));
    append(entries, std::uint16_t{0x101});
    append(entries, kHeader);
    append(entries, std::uint64_t{one.code.size()});
    append(entries, std::uint64_t{});
    append(entries, std::uint32_t{});
    append(entries, std::uint32_t{one.architecture});
    append(entries, std::uint64_t{});
    append(entries, std::uint64_t{one.is_compressed ? 0x2011U : 0x11U});
    entries.resize(begin + kHeader);
    entries += one.code;
  }
  std::string image;
  append(image, std::uint32_t{0xba55ed50});
  append(image, std::uint16_t{1});
  append(image, std::uint16_t{16});
  append(image, std::uint64_t{entries.size()});
  return image + entries;
}

}  // namespace gpumem::test
