// Files of safetensors and layouts of arrays, whoever wrote them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "client/cli/regions/array_layout.h"
#include "client/cli/regions/array_name.h"
#include "client/cli/regions/safetensors_file.h"
#include "client/cli/regions/safetensors_json.h"

namespace gpumem::cli {
namespace {

const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
    R"("none":{"dtype":"U8","shape":[0],"data_offsets":[12,12]},)"
    R"("running_mean":{"dtype":"U8","shape":[300],"data_offsets":[12,312]}})";
constexpr std::size_t kDataBytes = 312;
const std::string kLayout =
    R"({"arrays":[{"dtype":"float32","name":"w","offset":0,"private":false,"shape":[3],"strides":[4]},)"
    R"({"dtype":"uint8","name":"none","offset":256,"private":false,"shape":[0],"strides":[1]},)"
    R"({"dtype":"uint8","name":"running_mean","offset":256,"private":true,"shape":[300],"strides":[1]}],)"
    R"("metadata":{"format":"pt"}})";

std::string little(std::uint64_t number, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

std::string file_of(const std::string& header) {
  std::string data(kDataBytes, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i % 251 + 1);
  return little(header.size(), 8) + header + data;
}

std::string encoded(const std::string& json) {
  return "gpumemLA" + little(1, 4) + little(json.size(), 4) + json;
}

/// Some bytes of `text` are others, or it ends before.
std::string changed(std::string text, std::mt19937& random) {
  constexpr std::string_view kLetters = R"(0123456789",:{}[]-\ )";
  for (auto count = random() % 3 + 1; count > 0; --count)
    text[random() % text.size()] =
        random() % 4 == 0 ? static_cast<char>(random()) : kLetters[random() % kLetters.size()];
  if (random() % 8 == 0) text.resize(random() % text.size());
  return text;
}

struct SafetensorsTest : testing::Test {
  SafetensorsTest() { std::filesystem::create_directory(folder_); }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  static std::string read_in_pieces(RegionSource& source, std::size_t piece) {
    std::string all(source.size(), 'x');
    for (std::size_t done = 0; done < all.size();) {
      const auto count = source.read(std::span(all).subspan(done, std::min(piece, all.size() - done)));
      if (!count) return count.error().message;
      if (*count == 0) return "no end";
      done += *count;
    }
    return all;
  }
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("safetensors-" + std::to_string(::getpid()));
  const std::filesystem::path path_ = folder_ / "model.safetensors";
};

TEST_F(SafetensorsTest, BytesAreTheTensorsAtTheirPlacesAndTheLayout) {
  const std::string bytes = file_of(kHeader), data = bytes.substr(bytes.size() - kDataBytes);
  write(bytes);
  const std::string wanted = data.substr(0, 12) + std::string(256 - 12, '\0') + data.substr(12) +
                             std::string(768 - 256 - 300, '\0') + encoded(kLayout);
  for (const std::size_t piece : {1UL, 7UL, 256UL, 100'000UL}) {
    const auto source = safetensors_file(path_);
    ASSERT_TRUE(source->open());
    EXPECT_EQ(source->arrays(), 3U);
    EXPECT_EQ(source->layout(), encoded(kLayout).size());
    EXPECT_EQ(source->digest(), digest_of(encoded(kLayout)));
    EXPECT_EQ(read_in_pieces(*source, piece), wanted) << piece;
    EXPECT_TRUE(source->check());
  }
}

TEST_F(SafetensorsTest, AFileThatChangesMeanwhileIsRefused) {
  write(file_of(kHeader));
  const auto source = safetensors_file(path_);
  ASSERT_TRUE(source->open());
  std::filesystem::resize_file(path_, kHeader.size() + 20);
  EXPECT_NE(read_in_pieces(*source, 100).find("it became shorter"), std::string::npos);
  EXPECT_EQ(source->check().error().code, Code::kAborted);
}

TEST_F(SafetensorsTest, ARefusalNamesTheFileAndTheOptionForPlainBytes) {
  write(file_of(kHeader) + "x");
  const auto refused = safetensors_file(path_)->open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            path_.string() + ": the file has " + std::to_string(8 + kHeader.size() + kDataBytes + 1) +
                " bytes, and its tensors end at " + std::to_string(8 + kHeader.size() + kDataBytes) +
                "; --raw publishes the bytes of any file");
}

TEST_F(SafetensorsTest, ALengthThatLiesTakesNoMemory) {
  for (const std::uint64_t length :
       {std::uint64_t{99'999'999}, std::uint64_t{100'000'001}, ~std::uint64_t{0}}) {
    write(little(length, 8) + "{}");
    EXPECT_EQ(safetensors_file(path_)->open().error().code, Code::kInvalidArgument);
  }
}

TEST_F(SafetensorsTest, ChangedFilesAreRefusedOrReadWithinTheirBounds) {
  std::mt19937 random(7);
  int taken = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bytes = file_of(kHeader);
    const std::string head = changed(bytes.substr(0, 8 + kHeader.size()), random);
    bytes.replace(0, 8 + kHeader.size(), head);
    if (bytes.empty()) continue;
    write(bytes);
    const auto source = safetensors_file(path_);
    if (const auto opened = source->open(); !opened) {
      EXPECT_EQ(opened.error().code, Code::kInvalidArgument) << opened.error().message;
      continue;
    }
    ++taken;
    const std::string all = read_in_pieces(*source, 100);
    ASSERT_EQ(all.size(), source->size());
    EXPECT_TRUE(
        ArrayLayout::decode(all.substr(all.size() - source->layout()), all.size() - source->layout()));
  }
  EXPECT_GT(taken, 0);
}

TEST(SafetensorsJsonTest, DeepNestingIsRefusedWhereItBegins) {
  std::string text = "{";
  for (int i = 0; i < 1'000'000; ++i) text += R"("a":{)";
  EXPECT_FALSE(parse_safetensors(text));
  EXPECT_FALSE(parse_safetensors(R"({"a":{"shape":)" + std::string(1'000'000, '[')));
}

TEST(ArrayLayoutTest, ChangedLayoutsAreRefusedOrWrittenAsTheyWere) {
  const std::string good = encoded(kLayout);
  ASSERT_TRUE(ArrayLayout::decode(good, 556));
  EXPECT_FALSE(ArrayLayout::decode(good, 555)) << "the last array ends at 556";
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    const std::string bytes = changed(good, random);
    if (const auto layout = ArrayLayout::decode(bytes, 556)) {
      EXPECT_EQ(*layout->encode(), bytes);
    }
  }
}

// What is read of it is bounded before it is read: it would take gigabytes, or days.
TEST(ArrayLayoutTest, HugeLayoutsAreRefusedWhereTheyAreTooLarge) {
  const auto repeated = [](const std::string& what, std::size_t times) {
    std::string text;
    text.reserve(what.size() * times);
    for (std::size_t i = 0; i < times; ++i) text += what;
    return text;
  };
  for (const std::string& what :
       {std::string("{},"), std::string("[],"), std::string("["), std::string("{\"a\":")})
    EXPECT_FALSE(ArrayLayout::decode(encoded(R"({"arrays":[)" + repeated(what, 1'000'000)), 556)) << what;
}

TEST(ArrayLayoutTest, LayoutsOfManyArraysAreRead) {
  constexpr std::size_t kMany = 16'384;
  ArrayLayout layout;
  for (std::size_t i = 0; i < kMany; ++i)
    layout.arrays.push_back(
        {dtype_of("uint8"), "a" + std::to_string(i), i * kArrayAlignment, false, {1}, {1}, {}});
  const auto written = layout.encode();
  ASSERT_TRUE(written);
  const auto read = ArrayLayout::decode(*written, kMany * kArrayAlignment);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->arrays.size(), kMany);
}

TEST(ArrayNameTest, IsWhatPeopleSee) {
  for (const char* name : {"a", "decoder.weight", "\xc3\xa4", "\xf0\x9f\x98\x80", " ", "\xef\xbf\xbd"})
    EXPECT_TRUE(check_array_name(name, "an array")) << name;
  for (const char* name : {"", "a\n", "\x7f", "\xc2\x80", "\xc2\xad", "\xd8\x9c", "\xe2\x80\x8b",
                           "\xe2\x80\xa8", "\xe2\x80\xae", "\xef\xbb\xbf", "\xf3\xa0\x80\xa0"})
    EXPECT_FALSE(check_array_name(name, "an array")) << name;
  EXPECT_TRUE(check_array_name(std::string(512, 'a'), "an array"));
  EXPECT_FALSE(check_array_name(std::string(513, 'a'), "an array"));
  EXPECT_FALSE(check_array_name(std::string_view("\0", 1), "an array"));
}

}  // namespace
}  // namespace gpumem::cli
