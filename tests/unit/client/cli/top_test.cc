// The screen of `gpumem top`: what is drawn, and what keys do. No terminal.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "client/cli/top/controller.h"
#include "client/cli/top/screen.h"

namespace gpumem::cli::top {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;
const Moment kNow{Picture::Clock::time_point(std::chrono::hours(100)),
                  *parse_rfc3339("2030-01-02T12:00:00Z")};

v1::DeviceSample device(const std::string& uuid, std::uint64_t lent) {
  v1::DeviceSample sample;
  v1::DeviceStatus& status = *sample.mutable_status();
  status.set_uuid(uuid);
  status.set_name("NVIDIA H200\033[31m");
  status.set_total(140 * kGiB);
  status.set_pool(130 * kGiB);
  status.set_created(130 * kGiB);
  status.set_active(lent);
  status.set_asked_back(2 * kGiB);
  status.set_waiting(1);
  sample.mutable_reconciliation()->set_overhead(3 * kGiB);
  sample.mutable_reconciliation()->set_unexplained(kGiB);
  sample.set_utilization(87);
  sample.set_temperature(64);
  return sample;
}

// Labels that programs chose: control characters, wide and combining letters, marks of direction.
const std::array<const char*, 5> kHostileNames{"train\033[2J", "\u202Egnol", "e\u0301tude", "\u8a13\u7df4",
                                               "a\nb\tc"};

v1::SessionInfo session(std::uint64_t id, std::uint32_t user, std::uint64_t charged) {
  v1::SessionInfo info;
  info.set_id(id);
  info.set_pid(static_cast<std::int64_t>(4'000 + id));
  info.set_uid(user);
  info.set_tenant("uid:" + std::to_string(user));
  info.set_command("python3");
  info.set_label(id % 40 == 0 ? kHostileNames[id / 40 % kHostileNames.size()] : "");
  info.set_since("2030-01-02T10:00:00Z");
  v1::SliceInfo& slice = *info.add_slices();
  slice.set_device(id % 2 == 0 ? "GPU-a" : "GPU-b");
  slice.set_charged(charged);
  slice.set_in_use(charged / 2);
  slice.set_peak(charged / 4 * 3);
  return info;
}

/// 3 users with 200 sessions on 2 GPUs, a job, a request that waits, and memory that is asked back.
v1::Sample busy_sample() {
  v1::Sample sample;
  sample.set_number(1);
  sample.set_whole(true);
  sample.set_time("2030-01-02T12:00:00.123456Z");
  *sample.add_devices() = device("GPU-a", 100 * kGiB);
  *sample.add_devices() = device("GPU-b", 10 * kGiB);
  for (std::uint64_t id = 1; id <= 200; ++id)
    *sample.add_sessions() = session(id, static_cast<std::uint32_t>(2'000'000'001 + id % 3), id * kGiB / 16);
  for (const char* uuid : {"GPU-a", "GPU-b"}) {
    for (int user = 0; user < 3; ++user) {
      v1::TenantUsage& usage = *sample.add_tenants();
      usage.set_tenant("uid:" + std::to_string(2'000'000'001 + user));
      usage.set_parent("lab \u8a13");
      usage.set_device(uuid);
      usage.set_charged(static_cast<std::uint64_t>(user + 1) * 10 * kGiB);
    }
    v1::TenantUsage& lab = *sample.add_tenants();
    lab.set_tenant("lab \u8a13");
    lab.set_device(uuid);
    lab.set_charged(60 * kGiB);
  }
  v1::JobInfo& job = *sample.add_jobs();
  job.set_id(900);
  job.set_tenant("uid:2000000002");
  job.set_label("fit\u200B.py");
  job.set_since("2030-01-02T11:00:00Z");
  sample.mutable_sessions(198)->set_job(900);  // session 199
  job.add_devices()->set_charged(199 * kGiB / 16);
  sample.mutable_sessions(199)->mutable_slices(0)->set_waiting(4 * kGiB);
  v1::Denial& waiting = *sample.add_waiting();
  waiting.set_reason(v1::Denial::REASON_NO_MEMORY);
  waiting.set_tenant("uid:2000000003");
  waiting.set_session(200);
  waiting.set_device("GPU-a");
  waiting.set_asked(4 * kGiB);
  waiting.set_waited_ms(12'000);
  waiting.set_pool(130 * kGiB);
  waiting.set_free(kGiB);
  waiting.set_charged_to_others(90 * kGiB);
  v1::AskedBack& asked = *sample.add_asked_back();
  asked.set_session(199);
  asked.set_device("GPU-b");
  asked.set_bytes(2 * kGiB);
  asked.set_within_ms(5'000);
  return sample;
}

Picture busy_picture() {
  Picture picture;
  for (int minute = 34; minute >= 0; --minute) {
    v1::Sample sample = busy_sample();
    sample.mutable_devices(0)->mutable_status()->set_active(static_cast<std::uint64_t>(140 - 4 * minute) *
                                                            kGiB);
    if (minute == 0) sample.mutable_devices(0)->mutable_status()->set_active(100 * kGiB);
    picture.apply(sample, kNow.steady - std::chrono::minutes(minute));
  }
  return picture;
}

std::string drawn(const Picture& picture, const View& view) {
  std::string text;
  for (const Line& line : draw(picture, rows_of(picture, view.choice, kNow), view, kNow)) {
    EXPECT_LE(cells(line), view.width) << text_of(line);
    std::string shown = text_of(line);
    shown.erase(shown.find_last_not_of(' ') + 1);  // behind the selected row
    text += shown + "\n";
  }
  return text;
}

class Screen : public testing::TestWithParam<std::size_t> {};

// To draw them anew: take the folder that a failure names.
TEST_P(Screen, IsDrawnAsKept) {
  const std::string name = std::to_string(GetParam()) + ".txt";
  const std::filesystem::path kept = std::filesystem::path(GPUMEM_TEST_TOP) / name;
  const std::string text = drawn(busy_picture(), {.width = GetParam(), .height = 40, .selected = 3});
  std::ifstream file(kept);
  if (text == std::string(std::istreambuf_iterator<char>(file), {})) return;
  const auto folder = std::filesystem::temp_directory_path() / "gpumem-top-drawn";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name) << text;
  FAIL() << kept << " is otherwise than " << folder / name << ":\n" << text;
}
INSTANTIATE_TEST_SUITE_P(Widths, Screen, testing::Values(60, 80, 120, 200));

TEST(TopScreen, OfNamesThatOthersChoseIsAscii) {
  const std::string text = drawn(busy_picture(), {.width = 200, .is_ascii = true});
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); }));
  EXPECT_NE(text.find("\\u{202E}gnol"), std::string::npos);
  EXPECT_NE(text.find("train?[2J"), std::string::npos);
}

TEST(TopScreen, HasNoMoreLinesThanTheTerminal) {
  const Picture picture = busy_picture();
  for (std::size_t height = 0; height < 30; ++height)
    EXPECT_EQ(draw(picture, {}, {.height = height}, kNow).size(), height);
}

TEST(TopScreen, ShowsAllRowsWhereItHasNoHeight) {
  const std::string text = drawn(busy_picture(), {.width = 120});
  EXPECT_NE(text.find(" 4001 "), std::string::npos);
  EXPECT_NE(text.find(" 4200 "), std::string::npos);
}

// Of the size that numbers have where /run is a tmpfs.
TEST(TopScreen, ShowsJobsWithTheirWholeNumbersAndWhatTheirReservationsWaitFor) {
  v1::Sample sample = busy_sample();
  v1::JobInfo& job = *sample.mutable_jobs(0);
  job.set_id(1'795'915'234);
  job.set_owner(1);
  v1::Denial& waiting = *sample.add_waiting();
  waiting.set_session(1);
  waiting.set_asked(12 * kGiB);
  waiting.set_waited_ms(200'000);
  Picture picture;
  picture.apply(sample, kNow.steady);
  const std::string text = drawn(picture, {.width = 80, .is_ascii = true});
  const auto line_of = [&](const std::string& words) {
    const auto at = text.find(words);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_TRUE(line_of("job 1795915234 fit").ends_with(" 12G 3m")) << text;
  EXPECT_TRUE(line_of("      1    4001 ").ends_with(" 12G 3m")) << text;
  EXPECT_TRUE(line_of("uid:2000000002 ").ends_with(" 12G 3m")) << text;
  EXPECT_TRUE(line_of("lab ").ends_with(" 16G 3m")) << text;
}

TEST(TopSizes, AreShort) {
  EXPECT_EQ(short_size(0), "0");
  EXPECT_EQ(short_size(1023), "1.0K");
  EXPECT_EQ(short_size(24 * kGiB), "24G");
  EXPECT_EQ(short_size(3 * kGiB / 2), "1.5G");
  EXPECT_EQ(short_size(~std::uint64_t{0}), "16E");
}

TEST(TopPicture, TakesChangesAndForgetsWhatIsGone) {
  Picture picture = busy_picture();
  v1::Sample next;
  next.set_number(2);
  *next.add_sessions() = session(1, 7, kGiB);
  next.add_gone_sessions(2);
  next.add_gone_tenants("uid:2000000001");
  picture.apply(next, kNow.steady);
  EXPECT_EQ(picture.sessions().size(), 199U);
  EXPECT_EQ(picture.sessions().at(1).info.uid(), 7U);
  EXPECT_EQ(picture.tenants().size(), 6U);
  next.set_whole(true);
  picture.apply(next, kNow.steady);
  EXPECT_EQ(picture.sessions().size(), 1U);
}

TEST(TopPicture, ShowsWhatHasBeenQuietForLongWithMuchMemory) {
  const auto quiet = quiet_sessions(busy_picture(), 3, kNow);
  ASSERT_EQ(quiet.size(), 3U);
  EXPECT_EQ(quiet.front().id, 199U) << "session 200 waits";
  EXPECT_EQ(quiet.front().quiet, std::chrono::minutes(34));
}

struct Rows : testing::Test {
  void press(const std::string& letters) {
    for (const char letter : letters) press(Input{Input::Key::kLetter, letter});
  }
  Action press(const Input& input) {
    const Action action = controller.handle(input, rows, kRoom);
    renew();
    return action;
  }
  void renew() {
    rows = rows_of(picture, controller.view().choice, kNow);
    controller.update(rows, kRoom);
  }
  void SetUp() override { renew(); }
  const Row& selected() { return *controller.selected(rows); }

  static constexpr std::size_t kRoom = 20;
  Picture picture = busy_picture();
  Controller controller{View{}};
  std::vector<Row> rows;
};

TEST_F(Rows, StandBelowTheOneThatTheyBelongTo) {
  ASSERT_EQ(rows.size(), 1 + 3 + 1 + 200U);
  EXPECT_EQ(rows[0].name, "lab \\u{8A13}");
  EXPECT_EQ(rows[1].name, "uid:2000000003") << "the largest first";
  const auto job = std::ranges::find(rows, Row::Kind::kJob, &Row::kind);
  ASSERT_NE(job, rows.end());
  EXPECT_EQ((job + 1)->id, 199U);
  EXPECT_EQ(rows[0].asked, 2 * kGiB) << "with that of all below it";
}

TEST_F(Rows, AreFilteredWithThoseAboveThem) {
  press("f4200");
  press({Input::Key::kEnter});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].pid, 4200);
  press({Input::Key::kEscape});
  EXPECT_EQ(rows.size(), 205U);
}

TEST_F(Rows, KeepTheSelectionWhenTheOrderChanges) {
  press("/4007");
  press({Input::Key::kEnter});
  EXPECT_EQ(selected().pid, 4007);
  press("t");
  EXPECT_EQ(rows.size(), 200U);
  EXPECT_EQ(selected().pid, 4007);
  press("S");
  EXPECT_EQ(controller.view().choice.sort, Sort::kName);
  EXPECT_EQ(selected().pid, 4007);
  const View& view = controller.view();
  EXPECT_TRUE(view.first <= view.selected && view.selected < view.first + kRoom) << "it is on the screen";
}

TEST_F(Rows, SayThatNoneHasTheWordsOfASearch) {
  press("/4007");
  EXPECT_EQ(controller.view().prompt, "search: 4007_");
  press("x");
  EXPECT_EQ(controller.view().prompt, "search: 4007x_  no row has this");
  press({Input::Key::kEnter});
  EXPECT_EQ(controller.view().message, "no row has '4007x'");
  EXPECT_EQ(selected().pid, 4007);
}

TEST_F(Rows, FoldWhatIsBelowThem) {
  press({Input::Key::kHome});
  press(" ");
  EXPECT_EQ(rows.size(), 1U);
  press(" ");
  EXPECT_EQ(rows.size(), 205U);
}

TEST_F(Rows, AreEndedOnlyAfterAYes) {
  press("/4007");
  press({Input::Key::kEnter});
  EXPECT_EQ(press(Input{Input::Key::kLetter, 'k'}), Action::kAskToEnd);
  controller.ask("end it?");
  EXPECT_EQ(press({Input::Key::kEnter}), Action::kNone);
  EXPECT_EQ(press(Input{Input::Key::kLetter, 'y'}), Action::kNone) << "the question has gone";
  controller.ask("end it?");
  EXPECT_EQ(press(Input{Input::Key::kLetter, 'y'}), Action::kEnd);
}

TEST_F(Rows, QuitByQ) { EXPECT_EQ(press(Input{Input::Key::kLetter, 'q'}), Action::kQuit); }

}  // namespace
}  // namespace gpumem::cli::top
