// A writer whose reader does not read: a pipe that is full.
#include "base/text/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/system/unique_fd.h"

namespace gpumem {
namespace {

constexpr std::chrono::seconds kPatience{20};

struct LineWriterTest : testing::Test {
  LineWriterTest() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  std::unique_ptr<LineWriter> writer() {
    return std::make_unique<LineWriter>(
        write_end.get(), [](std::size_t count) { return "dropped " + std::to_string(count) + "\n"; });
  }
  /// Reads until `last` has come.
  std::string read_until(const std::string& last) {
    std::string text;
    char piece[4096];
    while (!text.ends_with(last)) {
      const ssize_t count = ::read(read_end.get(), piece, sizeof piece);
      if (count <= 0) break;
      text.append(piece, static_cast<std::size_t>(count));
    }
    return text;
  }

  UniqueFd read_end, write_end;
};

TEST_F(LineWriterTest, WritesLinesInTheirOrder) {
  auto one = writer();
  for (int i = 0; i < 100; ++i) one->write(std::to_string(i) + "\n");
  EXPECT_TRUE(one->flush(kPatience));
  const std::string text = read_until("99\n");
  EXPECT_TRUE(text.starts_with("0\n1\n2\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100);
}

TEST_F(LineWriterTest, NeverWaitsForAReaderAndTellsHowManyLinesItDropped) {
  auto one = writer();
  std::string line(1024, 'x');
  line.back() = '\n';
  const std::size_t count = 3 * LineWriter::kMostQueued / line.size();
  for (std::size_t i = 0; i < count; ++i) one->write(line);  // would never end if it waited
  EXPECT_FALSE(one->flush(std::chrono::milliseconds(0)));
  std::string text;
  char piece[4096];
  while (text.find("dropped ") == std::string::npos || !text.ends_with('\n')) {
    const ssize_t got = ::read(read_end.get(), piece, sizeof piece);
    ASSERT_GT(got, 0);
    text.append(piece, static_cast<std::size_t>(got));
  }
  const std::size_t dropped = std::stoul(text.substr(text.find("dropped ") + 8));
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  EXPECT_GT(dropped, 0U);
  EXPECT_EQ(lines - 1 + dropped, count) << "none is lost without being counted";
  one->write("after\n");
  EXPECT_EQ(read_until("after\n"), "after\n");
}

TEST_F(LineWriterTest, EndsThoughNobodyReads) {
  auto one = writer();
  one->write(std::string(100'000, '\n'));
  one.reset();  // the test's own time limit says whether it returned
  EXPECT_TRUE(write_end.valid());
}

TEST_F(LineWriterTest, GoesOnWhenTheReaderIsGone) {
  auto one = writer();
  read_end.reset();
  one->write("lost\n");
  EXPECT_TRUE(one->flush(kPatience));
}

}  // namespace
}  // namespace gpumem
