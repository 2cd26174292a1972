#include "base/device_code.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "tests/support/device_code.h"

namespace gpumem {
namespace {

using test::elf_code;
using test::fat_binary;

std::uint64_t of(const std::string& image, unsigned architecture = 90) {
  return variables_of(image_at(image.data()), architecture).count;
}

TEST(DeviceCode, TellsWhatTheVariablesOfElfTake) {
  EXPECT_EQ(of(elf_code({})), 0U);
  EXPECT_EQ(of(elf_code({{".nv.global", 5UL << 30}})), 5UL << 30);
  EXPECT_EQ(
      of(elf_code({{".nv.global", 100}, {".nv.global.init", 28}, {".nv.shared.f", 1000}, {".text.f", 64}})),
      128U);
}

TEST(DeviceCode, TellsWhatTheVariablesOfPtxTake) {
  EXPECT_EQ(
      of(".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .b8 big[4294967296];\n"),
      4UL << 30);
  EXPECT_EQ(of(".global .u32 one; .global .f64 two[3][0x10]; .global .v4 .f32 four[2];"), 4U + 384 + 32);
  EXPECT_EQ(of(".global .attribute(.managed) .align 8 .b64 shared[8];"), 64U);
  EXPECT_EQ(of(".global .s32 a = 3, b[2] = {1, 2};"), 12U) << "initializers are no lengths";
}

TEST(DeviceCode, KnowsTheLengthsOfArraysThatAreConstantExpressions) {
  EXPECT_EQ(of(".global .b8 a[64 * 1024];"), 64U << 10);
  EXPECT_EQ(of(".global .b8 a[1 << 20], b[(2 + 6) * (1<<10)][ 2 ];"), (1U << 20) + (16U << 10));
  EXPECT_EQ(of(".global .b8 a[10 - 2 * 3 + 9 / 3 % 2];"), 5U);
  EXPECT_EQ(of(".global .b8 a[1 + 1 << 3 >> 1];"), 8U) << "as in C";
  EXPECT_EQ(of(".global .b8 a[040], b[0x10U], c[0b101], d[7U], e[WARP_SZ];"), 32U + 16 + 5 + 7 + 32);
  EXPECT_EQ(of(".global .b32 r<4>;"), 16U);
  EXPECT_EQ(of(".global .b8 a[99999999999999999999][2];"), ~std::uint64_t{});
}

TEST(DeviceCode, LeavesOutArraysWhoseLengthItDoesNotKnow) {
  for (const char* const length : {"", " ", "n", "1 ? 2 : 3", "~0", "-1", "3 - 4", "1 / 0", "1 % 0",
                                   "1 << 64", "08", "4 4", "4 +", "(4", "4)", "0x", "4[", "0f3F800000"}) {
    EXPECT_EQ(of(".global .b8 a[" + std::string(length) + "], b[5];"), 5U) << length;
  }
  EXPECT_EQ(of(".global .b8 a[" + std::string(1000000, '(') + "4];"), 0U);
  EXPECT_EQ(of(".global .b8 a[4;"), 0U);
}

TEST(DeviceCode, ReadsPtxWhateverItsLinesAndBlanks) {
  const std::string big = ".global .b8 big[7];\n";
  EXPECT_EQ(of(".version 8.0\n.target sm_90, debug // for it\n.address_size 64 // bits\n" + big), 7U);
  EXPECT_EQ(of(".version 8.0 .target sm_90 .address_size 64 .global .b8 big[7];"), 7U);
  EXPECT_EQ(of(".version 8.0\r\n.target sm_90\r\n.file 1 \"a\", 1, 2\r\n" + big), 7U);
  EXPECT_EQ(of(".visible.global.align 4.v2.u32 big[7];"), 56U);
  EXPECT_EQ(of(".global/* of it */.b8/**/big[7];"), 7U);
  EXPECT_EQ(of("#line 3 \"a.cu\"\n" + big), 7U);
  EXPECT_EQ(of(".global .f16x2 two[3]; .global .b128 wide[2];"), 12U + 32);
}

TEST(DeviceCode, ReadsNothingInTheStringsOfPtx) {
  for (const char* const name :
       {"/date=2026/", "/{", "/}", "/(", "/*", "//", "a;b", R"(a\"=)", ".global .b8 x[9];"}) {
    const std::string file = std::string(".file 1 \"") + name + "\"\n";
    EXPECT_EQ(of(".version 8.0\n.target sm_90\n" + file + ".global .b8 big[7];"), 7U) << name;
    EXPECT_EQ(of(".func f()\n{\n.pragma \"" + std::string(name) + "\";\n}\n.global .b8 big[7];"), 7U) << name;
  }
  EXPECT_EQ(of(".file 1 \"it is not closed\n.global .b8 big[7];"), 7U);
}

TEST(DeviceCode, OfTypesWithoutASizeCountsNothing) {
  for (const char* const type :
       {".u", ".b", ".s", ".f", ".bf", ".", ".pred", ".texref", ".u999999999999999999999"})
    EXPECT_EQ(of(".global " + std::string(type) + " x[5];"), 0U) << type;
}

// Each would take minutes if its time grew with the square of its length.
TEST(DeviceCode, ThatIsDamagedTakesNoLongerThanItsLength) {
  constexpr std::size_t kMany = 2U << 20;
  for (const char each : {'[', '<', '(', '{', '"', '/', '.', ',', '=', '#'})
    EXPECT_EQ(of(".global .b8 x" + std::string(kMany, each)), 0U) << each;
  EXPECT_EQ(of(".global .b8 x" + std::string(kMany, '[') + ";"), 0U);
  std::string image = elf_code(std::vector<std::pair<std::string, std::uint64_t>>(60000, {"", 1}));
  Elf64_Ehdr header{};
  std::memcpy(&header, image.data(), sizeof header);
  Elf64_Shdr names{};
  names.sh_offset = image.size();
  names.sh_size = kMany;
  std::memcpy(image.data() + header.e_shoff + header.e_shstrndx * sizeof names, &names, sizeof names);
  EXPECT_EQ(of(image + std::string(kMany, 'a')), 0U) << "a name without an end";
}

TEST(DeviceCode, MayHaveMoreSectionsThanItsHeaderCanTell) {
  std::string image = elf_code({{".nv.global", 9}});
  Elf64_Ehdr header{};
  std::memcpy(&header, image.data(), sizeof header);
  Elf64_Shdr first{};
  first.sh_size = header.e_shnum;
  first.sh_link = header.e_shstrndx;
  header.e_shnum = 0;
  header.e_shstrndx = SHN_XINDEX;
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + header.e_shoff, &first, sizeof first);
  EXPECT_EQ(of(image), 9U);
  first.sh_size = ~std::uint64_t{};
  std::memcpy(image.data() + header.e_shoff, &first, sizeof first);
  const ReadImage whole = [&](std::uint64_t offset, void* to, std::size_t size) {
    if (offset > image.size() || size > image.size() - offset) return false;
    std::memcpy(to, image.data() + offset, size);
    return true;
  };
  EXPECT_EQ(variables_of(whole, 90).count, 0U) << "they are not all there";
}

TEST(DeviceCode, IsFoundByTheWholeNameOfItsSections) {
  EXPECT_EQ(of(elf_code({{".nv.globals", 1}, {".nv.glob", 2}, {".nv.global.", 4}, {"x.nv.global", 8}})), 4U);
  std::vector<std::pair<std::string, std::uint64_t>> sections(300, {std::string(100, 'k'), 1});
  sections.emplace_back(".nv.global", 9);
  sections.emplace_back(std::string(100, 'k'), 1);
  EXPECT_EQ(of(elf_code(sections)), 9U) << "names take several pages";
}

TEST(DeviceCode, CountsNothingElseOfPtx) {
  EXPECT_EQ(of(".extern .global .b8 others[4096];"), 0U);
  EXPECT_EQ(of("// .global .b8 gone[4096];\n/* .global .b8 gone[4096]; */"), 0U);
  EXPECT_EQ(of(".const .b8 table[4096]; .shared .b8 fast[4096];"), 0U);
  EXPECT_EQ(of(".visible .entry f(.param .u64 .ptr .global .align 8 p)\n{ .reg .b32 r; ld.global.u32 r, [p]; "
               "ret; }"),
            0U);
  EXPECT_EQ(of("no code at all"), 0U);
  EXPECT_EQ(of(""), 0U);
}

TEST(DeviceCode, OfAFatBinaryCountsWhatTheDeviceTakes) {
  const std::string text = std::string(".global .b8 t[5];") + '\0';
  const std::string fat = fat_binary({{.is_text = true, .architecture = 70, .code = text},
                                      {.architecture = 80, .code = elf_code({{".nv.global", 8}})},
                                      {.architecture = 86, .code = elf_code({{".nv.global", 6}})},
                                      {.architecture = 90, .code = elf_code({{".nv.global", 9}})}});
  EXPECT_EQ(of(fat, 90), 9U);
  EXPECT_EQ(of(fat, 89), 6U) << "the latest of its generation";
  EXPECT_EQ(of(fat, 80), 8U);
  EXPECT_EQ(of(fat, 120), 5U) << "text";
  EXPECT_EQ(of(fat, 60), 0U) << "nothing is for it";
}

TEST(DeviceCode, OfAFatBinaryEndsWithItsEntry) {
  const std::string fat = fat_binary({{.is_text = true, .architecture = 70, .code = ".global .b8 t[5];"},
                                      {.architecture = 100, .code = ".global .b8 other[3];"}});
  EXPECT_EQ(of(fat, 90), 5U) << "text without a NUL";
}

TEST(DeviceCode, KnowsNothingOfWhatIsCompressed) {
  EXPECT_EQ(
      of(fat_binary({{.architecture = 90, .is_compressed = true, .code = elf_code({{".nv.global", 9}})}})),
      0U);
}

// The driver answers for what is damaged; nothing is read beyond it.
TEST(DeviceCode, ThatIsCutOffAnywhereIsReadNoFurther) {
  const std::string whole = fat_binary({{.architecture = 90, .code = elf_code({{".nv.global", 9}})}});
  const std::size_t page = 4096;
  auto* const room = static_cast<char*>(
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(room, MAP_FAILED);
  ASSERT_EQ(::munmap(room + page, page), 0);
  ASSERT_LT(whole.size(), page);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    char* const at = room + page - size;
    std::memcpy(at, whole.data(), size);
    EXPECT_LE(variables_of(image_at(at), 90).count, 9U);
  }
  ::munmap(room, page);
  EXPECT_EQ(variables_of(image_at(nullptr), 90).count, 0U);
}

}  // namespace
}  // namespace gpumem
