#include "cuda/uuid.h"

#include <gtest/gtest.h>

namespace gpumem::cuda {
namespace {

constexpr std::string_view kText = "GPU-00112233-4455-6677-8899-aabbccddeeff";
constexpr DeviceUuid kUuid{
    {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}};

TEST(DeviceUuid, IsPrintedAsTheToolsOfTheDriverPrintIt) {
  EXPECT_EQ(to_string(kUuid), kText);
  EXPECT_EQ(to_string(DeviceUuid{}), "GPU-00000000-0000-0000-0000-000000000000");
}

TEST(DeviceUuid, IsReadWithAndWithoutItsPrefixInAnyCase) {
  EXPECT_EQ(parse_device_uuid(kText).value(), kUuid);
  EXPECT_EQ(parse_device_uuid(kText.substr(4)).value(), kUuid);
  EXPECT_EQ(parse_device_uuid("GPU-00112233-4455-6677-8899-AABBCCDDEEFF").value(), kUuid);
}

TEST(DeviceUuid, IsRefusedWhereAnythingElseIsWritten) {
  for (const auto* text :
       {"", "GPU-", "0", "GPU-00112233-4455-6677-8899-aabbccddeef",
        "GPU-00112233-4455-6677-8899-aabbccddeefff", "GPU-0011223304455-6677-8899-aabbccddeeff",
        "GPU-00112233-4455-6677-8899-aabbccddeegf", "GPU--0112233-4455-6677-8899-aabbccddeeff",
        "GPU-+0112233-4455-6677-8899-aabbccddeeff", "GPU- 0112233-4455-6677-8899-aabbccddeeff",
        "gpu-00112233-4455-6677-8899-aabbccddeeff", "MIG-00112233-4455-6677-8899-aabbccddeeff",
        "GPU-00112233-4455-6677-8899-aabbccddeeff "}) {
    const auto uuid = parse_device_uuid(text);
    ASSERT_FALSE(uuid) << text;
    EXPECT_EQ(uuid.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gpumem::cuda
