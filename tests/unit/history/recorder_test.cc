#include "daemon/history/recorder.h"

#include <sys/resource.h>

#include <csignal>

#include "tests/unit/history/samples.h"

namespace gpumem::history {
namespace {

struct RecorderTest : testing::Test {
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::directory_iterator(folder.path()))
      names.push_back(one.path().filename());
    std::ranges::sort(names);
    return names;
  }
  double recorded() const { return sum(shown(file, by({By::kTenant})), "a"); }

  test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "history.db";
};

/// While it lives, no file of this process grows beyond what it has.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(RecorderTest, WaitsAMinuteWhenTheDiskRefusesAndLosesNothing) {
  Recorder recorder(file, kRoom);
  ASSERT_TRUE(recorder.record(sample_at(0, {account("a", 7, 10)})));
  {
    const FullDisk full;
    EXPECT_FALSE(recorder.record(sample_at(1, {account("a", 7, 20)})));
    EXPECT_NE(recorder.problem(), "");
    EXPECT_FALSE(recorder.record(sample_at(62, {account("a", 7, 60)})));
  }
  EXPECT_FALSE(recorder.record(sample_at(63, {account("a", 7, 70)}))) << "it waits";
  EXPECT_EQ(recorded(), 10) << "what is there can be read meanwhile";
  EXPECT_TRUE(recorder.record(sample_at(123, {account("a", 7, 130)})));
  EXPECT_EQ(recorder.problem(), "");
  EXPECT_EQ(recorded(), 130);
}

struct Damage {
  const char* name;
  std::size_t at;
  bool while_open;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }
struct DamagedStoreTest : RecorderTest, testing::WithParamInterface<Damage> {};

TEST_P(DamagedStoreTest, IsSetAsideAndANewOneBegins) {
  std::optional<Recorder> recorder(std::in_place, file, kRoom);
  for (int i = 1; i <= 120; ++i)  // by the second minute all is in the file itself
    ASSERT_TRUE(
        recorder->record(sample_at(i, {account("a", 7, i), account("b" + std::to_string(i), {}, i)})));
  if (!GetParam().while_open) recorder.emplace(file, kRoom);
  std::string text = test::read_file(file);
  ASSERT_GT(text.size(), 20'000U);
  const std::size_t begin = GetParam().at;
  for (std::size_t i = begin; i < text.size(); ++i) text[i] = 'x';
  test::write_file(file, text);
  if (GetParam().while_open) recorder->doubt();  // a reader has found it
  for (int i = 121; i <= 260; ++i)
    static_cast<void>(recorder->record(sample_at(i, {account("a", 7, i), account("b", {}, i)})));
  EXPECT_EQ(recorder->problem(), "");
  const auto names = files();
  const auto is_aside = [](const std::string& name) {
    return name.starts_with("history.db.unreadable-2026-11-02T00:0") && name.ends_with("Z");
  };
  EXPECT_EQ(std::ranges::count_if(names, is_aside), 1) << testing::PrintToString(names);
  EXPECT_EQ(recorded(), 260) << "accounts have all that was counted since the machine started";
}

INSTANTIATE_TEST_SUITE_P(Kinds, DamagedStoreTest,
                         testing::Values(Damage{"no store", 0, false}, Damage{"pages", 4096, false},
                                         Damage{"pages of an open one", 4096, true}),
                         [](const auto& one) { return "Damage" + std::to_string(one.index); });

TEST_F(RecorderTest, BeginsAnewWhereItsFileWasTakenAway) {
  Recorder recorder(file, kRoom);
  ASSERT_TRUE(recorder.record(sample_at(0, {account("a", 7, 10)})));
  std::filesystem::remove(file);
  EXPECT_TRUE(recorder.record(sample_at(1, {account("a", 7, 20)})));
  EXPECT_EQ(recorded(), 20);
}

TEST_F(RecorderTest, LeavesAFileOfANewerVersionAlone) {
  {
    Recorder first(file, kRoom);
    ASSERT_TRUE(first.record(sample_at(0, {account("a", 7, 10)})));
  }
  ASSERT_TRUE(Database::open(file, Database::Mode::kWrite)->run("PRAGMA user_version=99"));
  Recorder recorder(file, kRoom);
  EXPECT_FALSE(recorder.record(sample_at(1, {account("a", 7, 20)})));
  EXPECT_NE(recorder.problem().find("newer"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace gpumem::history
