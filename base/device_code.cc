#include "base/device_code.h"

#include <elf.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace gpumem {
namespace {

constexpr std::uint64_t kLongestText = 256U << 20;

// The `size` bytes from `begin` of another image.
ReadImage part_of(const ReadImage& whole, std::uint64_t begin, std::uint64_t size) {
  return [&whole, begin, most = std::min(size, kMostBytes - begin)](std::uint64_t offset, void* to,
                                                                    std::size_t wanted) {
    return offset <= most && wanted <= most - offset && whole(begin + offset, to, wanted);
  };
}

template <class T>
std::optional<T> read_at(const ReadImage& image, std::uint64_t offset) {
  T value{};
  return image(offset, &value, sizeof value) ? std::optional(value) : std::nullopt;
}

// ---- ELF ----

/// The names of sections. Of a table whose size is the image's word, and of names that may have no end, it
/// reads what is asked for, a page at a time.
class SectionNames {
 public:
  SectionNames(const ReadImage& image, const Elf64_Shdr& table)
      : names_(part_of(image, table.sh_offset, table.sh_size)), size_(table.sh_size) {}

  /// Whether the section is `.nv.global` or `.nv.global.init`.
  bool is_of_variables(const Elf64_Shdr& section) {
    std::array<char, kName.size() + 1> begin{};  // and the end of the name, or the dot behind it
    if (!copy(section.sh_name, begin)) return false;
    const bool ends_there = begin.back() == '\0' || begin.back() == '.';
    return ends_there && std::string_view(begin.data(), kName.size()) == kName;
  }

 private:
  static constexpr std::string_view kName = ".nv.global";

  // False: so much is not there.
  bool copy(std::uint64_t offset, std::span<char> to) {
    if (offset < at_ || offset - at_ > page_.size() - to.size()) {
      at_ = offset;
      if (offset >= size_) return false;
      const std::uint64_t there = std::min<std::uint64_t>(size_ - offset, page_.size());
      is_read_ = names_(offset, page_.data(), there);
      filled_ = there;
    }
    if (!is_read_ || offset - at_ + to.size() > filled_) return false;
    std::copy_n(page_.begin() + static_cast<std::ptrdiff_t>(offset - at_), to.size(), to.begin());
    return true;
  }

  ReadImage names_;
  std::uint64_t size_;
  std::array<char, 4096> page_{};
  std::uint64_t at_ = kMostBytes, filled_ = 0;  ///< what of the table is in the page
  bool is_read_ = false;
};

/// The sections of an image, read a few at a time.
class Sections {
 public:
  /// With `header`'s words for what its own fields have no room for: they are in the first section.
  static std::optional<Sections> of(const ReadImage& image, const Elf64_Ehdr& header) {
    std::uint64_t count = header.e_shnum, names = header.e_shstrndx;
    if (count == 0 || names == SHN_XINDEX) {
      const auto first = read_at<Elf64_Shdr>(image, header.e_shoff);
      if (!first || header.e_shoff == 0) return std::nullopt;
      if (count == 0) count = first->sh_size;
      if (names == SHN_XINDEX) names = first->sh_link;
    }
    if (names >= count) return std::nullopt;
    return Sections(image, header.e_shoff, std::min(count, kMost), names);
  }

  std::optional<Elf64_Shdr> names() const {
    return read_at<Elf64_Shdr>(image_, capped_sum(begin_, names_ * sizeof(Elf64_Shdr)));
  }
  /// Calls `look` with each. False: they are not all there.
  template <class Look>
  bool each(const Look& look) const {
    std::array<Elf64_Shdr, 64> some{};
    for (std::uint64_t done = 0; done < count_; done += some.size()) {
      const std::size_t now = std::min<std::uint64_t>(count_ - done, some.size());
      if (!image_(capped_sum(begin_, done * sizeof(Elf64_Shdr)), some.data(), now * sizeof(Elf64_Shdr)))
        return false;
      std::for_each_n(some.begin(), now, look);
    }
    return true;
  }

 private:
  static constexpr std::uint64_t kMost = 1U << 22;  // compilers make some for each kernel

  Sections(const ReadImage& image, std::uint64_t begin, std::uint64_t count, std::uint64_t names)
      : image_(image), begin_(begin), count_(count), names_(names) {}

  const ReadImage& image_;
  std::uint64_t begin_, count_, names_;
};

Bytes variables_of_elf(const ReadImage& image) {
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr))
    return {};
  const auto sections = Sections::of(image, *header);
  const auto table = sections ? sections->names() : std::nullopt;
  if (!table) return {};
  SectionNames names(image, *table);
  std::uint64_t all = 0;
  const bool are_there = sections->each([&](const Elf64_Shdr& section) {
    const bool is_loaded = (section.sh_flags & SHF_ALLOC) != 0;
    if (is_loaded && names.is_of_variables(section)) all = capped_sum(all, section.sh_size);
  });
  return {are_there ? all : 0};
}

// ---- Fat binaries ----

// As nvcc writes them; no header of NVIDIA's declares more than the first of these.
struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
  const void* more;
};
struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version, header_size;
  std::uint64_t size;
};
struct FatEntry {
  std::uint16_t kind, unknown;
  std::uint32_t header_size;
  std::uint64_t size;
  std::uint32_t compressed_size, options;
  std::uint16_t minor, major;
  std::uint32_t architecture, name_offset, name_size;
  std::uint64_t flags;
};
static_assert(sizeof(FatHeader) == 16 && sizeof(FatEntry) == 48);
constexpr std::uint32_t kWrapperMagic = 0x466243b1, kFatMagic = 0xba55ed50;
constexpr std::uint16_t kText = 1, kElf = 2;
constexpr std::uint64_t kCompressed = 0x2000 | 0x8000;

/// The entry of a fat binary that a device loads: the latest code of its own generation, else the latest
/// text.
struct Choice {
  unsigned architecture;
  FatEntry best{};  ///< of no kind: there is none
  std::uint64_t at = 0;

  void look_at(const FatEntry& entry, std::uint64_t offset) {
    const unsigned of = entry.architecture;
    const bool fits =
        of <= architecture && (entry.kind == kText || (entry.kind == kElf && of / 10 == architecture / 10));
    const auto rank = [](const FatEntry& e) { return std::pair(e.kind, e.architecture); };
    if (!fits || rank(best) >= rank(entry)) return;
    best = entry;
    at = offset;
  }
};

Bytes variables_of_text_in(const ReadImage& image);

Bytes variables_of_fat_binary(const ReadImage& image, unsigned architecture) {
  const auto header = read_at<FatHeader>(image, 0);
  if (!header || header->magic != kFatMagic || header->header_size < sizeof *header) return {};
  Choice choice{architecture};
  const std::uint64_t end = capped_sum(header->header_size, header->size);
  for (std::uint64_t at = header->header_size; at < end;) {
    const auto entry = read_at<FatEntry>(image, at);
    if (!entry || entry->header_size < sizeof *entry || entry->size == 0) break;
    choice.look_at(*entry, at);
    at = capped_sum(at, capped_sum(entry->header_size, entry->size));
  }
  if (choice.best.kind == 0 || (choice.best.flags & kCompressed) != 0) return {};
  const ReadImage code = part_of(image, capped_sum(choice.at, choice.best.header_size), choice.best.size);
  return choice.best.kind == kElf ? variables_of_elf(code) : variables_of_text_in(code);
}

// ---- PTX ----

Bytes variables_of_text_in(const ReadImage& image) {
  constexpr std::size_t kPage = 4096;
  std::string text;
  for (std::array<char, kPage> page{}; text.size() < kLongestText;) {
    std::size_t size = page.size();
    while (size > 0 && !image(text.size(), page.data(), size)) size /= 2;  // up to where it ends
    const auto end = std::find(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(size), '\0');
    text.append(page.begin(), end);
    if (size == 0 || end != page.begin() + static_cast<std::ptrdiff_t>(size)) break;
  }
  return variables_of_text(text);
}

}  // namespace

ReadImage image_at(const void* address) {
  return [address](std::uint64_t offset, void* to, std::size_t size) {
    iovec into{to, size};
    iovec from{reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) + offset), size};
    return ::process_vm_readv(::getpid(), &into, 1, &from, 1, 0) == static_cast<ssize_t>(size);
  };
}

CodeForm form_of(const ReadImage& image) {
  switch (read_at<std::uint32_t>(image, 0).value_or(0)) {
    case 0x464c457f: return CodeForm::kElf;
    case kFatMagic:
    case kWrapperMagic: return CodeForm::kFatBinary;
    default: return CodeForm::kText;
  }
}

Bytes variables_of(const ReadImage& image, unsigned architecture) {
  switch (form_of(image)) {
    case CodeForm::kElf: return variables_of_elf(image);
    case CodeForm::kText: return variables_of_text_in(image);
    case CodeForm::kFatBinary: break;
  }
  const auto wrapper = read_at<Wrapper>(image, 0);
  if (wrapper && wrapper->magic == kWrapperMagic)
    return variables_of_fat_binary(image_at(wrapper->data), architecture);
  return variables_of_fat_binary(image, architecture);
}

}  // namespace gpumem
