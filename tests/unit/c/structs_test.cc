#include "client/c/structs.h"

#include <gtest/gtest.h>

namespace gpumem::c_abi {
namespace {

struct Known {
  std::size_t struct_size;
  std::uint64_t one;
  std::uint64_t two;
};
/// Of an older program, and of a newer one.
struct Older {
  std::size_t struct_size;
  std::uint64_t one;
};
struct Newer {
  std::size_t struct_size;
  std::uint64_t one, two, three;
};
/// Has the room that every size taken for true may claim.
struct Largest {
  std::size_t struct_size;
  std::uint64_t one, two;
  unsigned char more[kLargestStruct];
};

template <class Struct>
Result<Known> read(const Struct& given) {
  return read_struct(reinterpret_cast<const Known*>(&given), "known");
}

TEST(Structs, NullMeansTheDefaults) {
  const auto known = read_struct<Known>(nullptr, "known");
  ASSERT_TRUE(known);
  EXPECT_EQ(known->struct_size, sizeof(Known));
  EXPECT_EQ(known->one + known->two, 0U);
}

TEST(Structs, OlderOnesHaveDefaultsForWhatTheyLack) {
  const auto known = read(Older{sizeof(Older), 1});
  ASSERT_TRUE(known);
  EXPECT_EQ(known->one, 1U);
  EXPECT_EQ(known->two, 0U);
}

TEST(Structs, NewerOnesAreTakenAsLongAsWhatIsNewIsZero) {
  const auto known = read(Newer{sizeof(Newer), 1, 2, 0});
  ASSERT_TRUE(known);
  EXPECT_EQ(known->two, 2U);
  const auto refused = read(Newer{sizeof(Newer), 1, 2, 3});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
}

TEST(Structs, SizesThatWereNeverSetAreRefused) {
  for (const std::size_t size : {std::size_t{0}, sizeof(std::size_t) - 1, kLargestStruct + 1, SIZE_MAX}) {
    const auto refused = read(Largest{size, 0, 0, {}});
    ASSERT_FALSE(refused) << size;
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("_INIT"), std::string::npos) << refused.error().message;
    Largest out{size, 7, 7, {}};
    EXPECT_FALSE(write_struct(Known{0, 1, 2}, reinterpret_cast<Known*>(&out), "known"));
    EXPECT_EQ(out.one, 7U);
  }
}

TEST(Structs, AreFilledAsFarAsTheCallersGo) {
  Newer newer{sizeof(Newer), 9, 9, 9};
  ASSERT_TRUE(write_struct(Known{0, 1, 2}, reinterpret_cast<Known*>(&newer), "known"));
  EXPECT_EQ(newer.struct_size, sizeof(Newer));
  EXPECT_EQ(newer.one, 1U);
  EXPECT_EQ(newer.two, 2U);
  EXPECT_EQ(newer.three, 0U) << "what the library does not know is zero";
  Newer older{sizeof(Older), 9, 9, 9};
  ASSERT_TRUE(write_struct(Known{0, 1, 2}, reinterpret_cast<Known*>(&older), "known"));
  EXPECT_EQ(older.one, 1U);
  EXPECT_EQ(older.two, 9U) << "beyond the struct_size";
  EXPECT_FALSE(write_struct<Known>(Known{}, nullptr, "known"));
}

}  // namespace
}  // namespace gpumem::c_abi
