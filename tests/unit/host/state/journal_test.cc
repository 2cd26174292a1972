// The next broker reads every change that was added before the broker ended.
#include "daemon/host/state/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/crc.hpp>

#include "tests/unit/core/policies.h"
#include "tests/unit/host/state/journal_fixture.h"

namespace gpumem::host {
namespace {

using core::Checkpoint;
using core::CommandJobId;
using core::ImportId;
using core::RegionId;
using test::read_file;
using test::write_file;
using testing::HasSubstr;

// One of each kind, which do not take each other back.
std::vector<Checkpoint::Change> some_changes() {
  const core::TimePoint since{std::chrono::hours(7)};
  core::Peer peer{.pid = 42, .uid = 1000, .gids = {1000, 27}, .command = "train", .started = 99};
  peer.can_be_ended = false;
  peer.owner = core::Owner{7, {8, 9}};
  const Checkpoint::Region region{
      RegionId{4}, "weights", 1, {LeaseId{7}}, mebibytes(1), mebibytes(32),
      Bytes{100},  {'d'},     3, {"bob"},      since,        core::TimePoint::max()};
  return {Checkpoint::Session{SessionId{3}, peer, "a label", "ann", since, false},
          Checkpoint::Session{SessionId{4}, {}, "", "", since, true},
          Checkpoint::Session{SessionId{5}, {}, "gone", "", since, false},
          Checkpoint::Slice{SliceId{5}, SessionId{3}, 1, gibibytes(8), "weights", true},
          Checkpoint::Slice{SliceId{6}, SessionId{3}, 0, gibibytes(1), ""},
          Checkpoint::Lease{LeaseId{7}, GrantId{2}, SessionId{3}, SliceId{5}, 1, mebibytes(64), false, true},
          Checkpoint::Lease{LeaseId{8}, GrantId{2}, SessionId{4}, {}, 0, mebibytes(2), true, false},
          Checkpoint::Lease{LeaseId{9}, GrantId{2}, SessionId{4}, {}, 0, mebibytes(2), false, false},
          Checkpoint::Import{ImportId{1}, SessionId{4}, {LeaseId{7}, LeaseId{8}}},
          Checkpoint::Import{ImportId{2}, SessionId{4}, {}},
          Checkpoint::Suspect{SessionId{3}, {LeaseId{7}, LeaseId{8}, LeaseId{9}}},
          Checkpoint::Suspect{SessionId{5}, {LeaseId{7}}},
          Checkpoint::Suspect{SessionId{4}, {LeaseId{9}}},
          Checkpoint::Declaration{SessionId{3}, 1, gibibytes(1)},
          Checkpoint::Numbers{
              SessionId{30}, SliceId{50}, LeaseId{70}, GrantId{20}, ImportId{10}, {}, CommandJobId{9}},
          region,
          Checkpoint::Region{RegionId{5},
                             "kept",
                             0,
                             {},
                             {},
                             {},
                             {},
                             {},
                             0,
                             {},
                             since,
                             since,
                             true,
                             std::chrono::seconds(5),
                             since},
          Checkpoint::Region{RegionId{6}, "", 0, {}, {}, {}, {}, {}, 0, {}, since, since},
          Checkpoint::Waiting{RequestId{11},
                              SessionId{3},
                              since,
                              since + std::chrono::hours(1),
                              {SliceId{5}, SliceId{6}},
                              {gibibytes(2), mebibytes(2)}},
          Checkpoint::Waiting{RequestId{12}, SessionId{3}, since, since, {SliceId{5}}, {mebibytes(2)}},
          Checkpoint::Waiting{RequestId{13}, SessionId{5}, since, since, {SliceId{5}}, {mebibytes(2)}},
          Checkpoint::CommandJob{CommandJobId{7},
                                 SessionId{3},
                                 8,
                                 "train",
                                 since,
                                 {gibibytes(8), gibibytes(4)},
                                 {gibibytes(2), {}},
                                 std::chrono::seconds(3),
                                 2,
                                 {gibibytes(6), {}}},
          Checkpoint::CommandJob{CommandJobId{8}, {}, 0, "", since, {{}, {}}, {{}, {}}, {}, 0, {{}, {}}},
          Checkpoint::Spent{
              SessionId{3}, {}, core::ByteTime(1, 2), since, gibibytes(1), std::chrono::seconds(4), 5},
          Checkpoint::Spent{SessionId{5}, {}, {}, since, {}},
          Checkpoint::Spent{{}, CommandJobId{7}, core::ByteTime(3, 4), since, gibibytes(2)},
          Checkpoint::Spent{{}, CommandJobId{8}, {}, since, {}},
          Checkpoint::WaitingGone{SessionId{3}, RequestId{12}},
          Checkpoint::SessionGone{SessionId{5}},
          Checkpoint::SliceGone{SliceId{6}},
          Checkpoint::LeaseGone{LeaseId{9}},
          Checkpoint::ImportGone{ImportId{2}},
          Checkpoint::RegionSealed{RegionId{5}},
          Checkpoint::RegionSealed{RegionId{6}},
          Checkpoint::RegionGone{RegionId{6}},
          Checkpoint::CommandJobGone{CommandJobId{8}},
          Checkpoint::Answer{SessionId{3}, 7, 5},
          Checkpoint::Answer{SessionId{3}, 8, 6},
          Checkpoint::Answer{SessionId{5}, 7, 5},
          Checkpoint::Account{"ann", 1, since, since + std::chrono::seconds(2), {core::ByteTime(1, 2)}},
          Checkpoint::Account{"", 0, since, since, {}},
          Checkpoint::Account{"bob", 1, since, since, {}},
          Checkpoint::AccountGone{"bob"}};
}

Checkpoint made_of(std::span<const Checkpoint::Change> changes) {
  Checkpoint checkpoint;
  for (const Checkpoint::Change& change : changes) checkpoint.apply(change);
  return checkpoint;
}

TEST_F(JournalKept, HasItsCheckpointAndTheChangesSince) {
  const auto changes = some_changes();
  const std::span all(changes);
  auto journal = begin(made_of(all.first(4)));
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->add(all.subspan(4, 3)));
  ASSERT_TRUE(journal->add(all.subspan(7)));
  const Journal::Content content = read();
  EXPECT_EQ(content.checkpoint, made_of(all));
  EXPECT_EQ(content.devices, kDevices);
  EXPECT_EQ(content.damage, "");
}

TEST_F(JournalKept, ThatIsMissingIsNoError) {
  const auto content = Journal::read(folder_.path());
  ASSERT_TRUE(content);
  EXPECT_FALSE(*content);
}

TEST_F(JournalKept, IsReadAsFarAsItWasWrittenWhereverItEnds) {
  const auto changes = some_changes();
  const std::vector<std::size_t> ends = write_one_by_one(changes);
  const std::string whole = read_file(file());
  for (std::size_t size = ends.front(); size <= whole.size(); ++size) {
    write_file(file(), whole.substr(0, size));
    const auto written = static_cast<std::size_t>(std::ranges::upper_bound(ends, size) - ends.begin()) - 1;
    const Journal::Content content = read();
    EXPECT_EQ(content.checkpoint, made_of(std::span(changes).first(written))) << size;
    EXPECT_EQ(content.damage.empty(), ends[written] == size) << size;
  }
}

TEST_F(JournalKept, IsReadUpToTheFirstRecordThatIsDamaged) {
  const auto changes = some_changes();
  const std::vector<std::size_t> ends = write_one_by_one(changes);
  const std::string whole = read_file(file());
  for (std::size_t at = ends.front(); at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_file(file(), damaged);
    const auto good = static_cast<std::size_t>(std::ranges::upper_bound(ends, at) - ends.begin()) - 1;
    const Journal::Content content = read();
    EXPECT_EQ(content.checkpoint, made_of(std::span(changes).first(good))) << at;
    EXPECT_NE(content.damage, "") << at;
  }
}

TEST_F(JournalKept, RecordOfADeviceThatThereIsNotIsDamage) {
  auto journal = begin();
  ASSERT_TRUE(journal->add(std::vector<Checkpoint::Change>{
      Checkpoint::Lease{LeaseId{7}, GrantId{2}, SessionId{3}, SliceId{5}, 2, mebibytes(64), false, false}}));
  EXPECT_THAT(read().damage, HasSubstr("a device that there is not"));
  EXPECT_TRUE(read().checkpoint.leases.empty());
}

TEST_F(JournalKept, OfAnotherRunOfTheMachineIsNothing) {
  ASSERT_TRUE(begin(made_of(some_changes())));
  std::string bytes = read_file(file());
  bytes[16] = bytes[16] == '0' ? '1' : '0';
  write_file(file(), bytes);
  const auto content = Journal::read(folder_.path());
  ASSERT_TRUE(content);
  EXPECT_FALSE(*content);
}

TEST_F(JournalKept, OfAnotherVersionIsRefused) {
  ASSERT_TRUE(begin());
  std::string bytes = read_file(file());
  bytes[8] = 2;
  write_file(file(), bytes);
  const auto content = Journal::read(folder_.path());
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(content.error().message, HasSubstr(file().string()));
  EXPECT_THAT(content.error().message, HasSubstr("version 2"));
}

std::string a_record() {
  std::string record;
  encode(Checkpoint::SessionGone{SessionId{3}}, record);
  return record;
}

/// A whole record without words.
std::string record_of_kind(std::uint64_t kind) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(&kind, sizeof kind);
  const std::uint32_t header[2] = {sizeof kind, crc.checksum()};
  std::string record(reinterpret_cast<const char*>(header), sizeof header);
  return record.append(reinterpret_cast<const char*>(&kind), sizeof kind);
}

TEST_F(JournalKept, WithARecordOfAnUnknownKindIsRefusedWhole) {
  ASSERT_TRUE(begin(made_of(some_changes())));
  write_file(file(), read_file(file()) + record_of_kind(99) + a_record());
  const auto content = Journal::read(folder_.path());
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(content.error().message, HasSubstr(file().string()));
  EXPECT_THAT(content.error().message, HasSubstr("a record of kind 99, which this version does not know"));
}

TEST_F(JournalKept, ThatEightBrokersDidNotSurviveIsRefused) {
  ASSERT_TRUE(begin(made_of(some_changes())));
  for (std::uint32_t i = 0; i < Journal::kMostAttempts; ++i)
    EXPECT_EQ(read().checkpoint, made_of(some_changes()));
  const auto content = Journal::read(folder_.path());
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(content.error().message, HasSubstr("8 brokers have ended"));
  ASSERT_TRUE(begin(made_of(some_changes())));
  EXPECT_EQ(read().checkpoint, made_of(some_changes())) << "the next journal is a new one";
}

TEST_F(JournalKept, DoesNotCountBrokersThatCameToAnOrderlyEnd) {
  ASSERT_TRUE(begin(made_of(some_changes())));
  for (std::uint32_t i = 0; i < 2 * Journal::kMostAttempts; ++i) {
    EXPECT_EQ(read().checkpoint, made_of(some_changes()));
    Journal::take_attempt_back(folder_.path());
  }
}

TEST_F(JournalKept, IsLookedAtAsOftenAsAnybodyLikes) {
  auto journal = begin(made_of(some_changes()));
  ASSERT_TRUE(journal);
  const std::string bytes = read_file(file());
  for (std::uint32_t i = 0; i < 2 * Journal::kMostAttempts; ++i) {
    const auto content = Journal::look(folder_.path());
    ASSERT_TRUE(content && *content);
    EXPECT_EQ((*content)->checkpoint, made_of(some_changes()));
    EXPECT_EQ((*content)->devices, kDevices);
  }
  EXPECT_EQ(read_file(file()), bytes);
}

TEST_F(JournalKept, OfAnotherFormatIsRefused) {
  for (const std::string& text : {std::string(), std::string("GMEMJRNL"), std::string(200, 'x')}) {
    write_file(file(), text);
    const auto content = Journal::read(folder_.path());
    ASSERT_FALSE(content);
    EXPECT_EQ(content.error().code, Code::kInvalidArgument) << text;
  }
}

TEST_F(JournalKept, OnAFullDiskIsUnchangedAndGoesOnAfterwards) {
  const auto changes = some_changes();
  auto journal = begin();
  ASSERT_TRUE(journal->add(std::span(changes).first(3)));
  {
    const FullDisk full(size() + 20);
    const auto added = journal->add(std::span(changes).subspan(3, 2));
    ASSERT_FALSE(added);
    EXPECT_THAT(added.error().message, HasSubstr(file().string()));
  }
  EXPECT_EQ(read().checkpoint, made_of(std::span(changes).first(3)));
  EXPECT_EQ(read().damage, "");
  ASSERT_TRUE(journal->add(std::span(changes).subspan(5))) << "with those that it has kept";
  EXPECT_EQ(read().checkpoint, made_of(changes));
}

TEST_F(JournalKept, IsReplacedWholeOnceMuchIsKept) {
  const auto changes = some_changes();
  auto journal = begin();
  ASSERT_TRUE(journal->add(std::span(changes).first(3)));
  const auto finish = [&] {
    auto done = journal->finish_shortening();
    while (done && !*done) done = journal->finish_shortening();
    return done.has_value();
  };
  {
    const FullDisk full(size());
    ASSERT_FALSE(journal->add(std::span(changes).subspan(3, 1)));
    EXPECT_FALSE(journal->is_behind()) << "what is kept can be added";
    const Checkpoint::Change gone = Checkpoint::AccountGone{std::string(1000, 'x')};
    while (!journal->has_much_kept()) journal->keep({&gone, 1});
    for (std::size_t at : {4U, 5U}) {
      journal->begin_to_shorten();
      EXPECT_TRUE(journal->is_behind());
      EXPECT_FALSE(journal->has_much_kept());
      journal->keep(std::span(changes).subspan(at, 1));
      EXPECT_FALSE(finish());
      EXPECT_TRUE(journal->is_behind());
    }
    EXPECT_EQ(read().checkpoint, made_of(std::span(changes).first(3)));
  }
  journal->begin_to_shorten();
  journal->keep(std::span(changes).subspan(6));
  ASSERT_TRUE(finish());
  EXPECT_FALSE(journal->is_behind());
  ASSERT_TRUE(journal->write_kept());
  EXPECT_EQ(read().checkpoint, made_of(changes));
  EXPECT_LT(size(), std::uintmax_t{10'000});
}

TEST_F(JournalKept, RewrittenHasThePresentStateAlone) {
  auto journal = begin();
  const Checkpoint::Change opened = some_changes().front();
  const Checkpoint::Change gone = Checkpoint::SessionGone{SessionId{3}};
  while (!journal->is_long()) {
    ASSERT_TRUE(journal->add({&opened, 1}));
    ASSERT_TRUE(journal->add({&gone, 1}));
  }
  EXPECT_GT(read_file(file()).size(), std::size_t{1} << 20);
  const Checkpoint now = read().checkpoint;
  ASSERT_TRUE(journal->rewrite(now));
  EXPECT_LT(read_file(file()).size(), std::size_t{1024});
  EXPECT_EQ(read().checkpoint, now);
  EXPECT_FALSE(journal->is_long());
  ASSERT_TRUE(journal->add({&opened, 1}));
  EXPECT_EQ(read().checkpoint.sessions.size(), 1U);
}

TEST_F(JournalKept, IsShortenedWhileChangesAreAdded) {
  const auto changes = some_changes();
  auto journal = begin();
  ASSERT_TRUE(journal->add(std::span(changes).first(3)));
  journal->begin_to_shorten();
  ASSERT_TRUE(journal->add(std::span(changes).subspan(3, 4)));
  const std::string label(1000, 'x');
  for (std::uint64_t i = 0; i < 1000; ++i) {  // some MiB
    const Checkpoint::Change opened = Checkpoint::Session{SessionId{100 + i}, {}, label, "", {}, true};
    ASSERT_TRUE(journal->add({&opened, 1}));
    const Checkpoint::Change gone = Checkpoint::SessionGone{SessionId{100 + i}};
    ASSERT_TRUE(journal->add({&gone, 1}));
  }
  const Checkpoint before = read().checkpoint;
  auto done = journal->finish_shortening();
  while (done && !*done) done = journal->finish_shortening();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read().checkpoint, before);
  ASSERT_TRUE(journal->add(std::span(changes).subspan(7)));
  Checkpoint all = made_of(changes);
  all.apply(Checkpoint::Numbers{SessionId{1099}, {}, {}, {}, {}, {}, {}});
  EXPECT_EQ(read().checkpoint, all);
  EXPECT_EQ(read().damage, "");
}

TEST_F(JournalKept, LosesNothingIfTheThreadThatShortensItFails) {
  const auto changes = some_changes();
  auto journal = begin();
  ASSERT_TRUE(journal->add(std::span(changes).first(3)));
  const std::filesystem::path obstacle = folder_ / "journal.new";
  std::filesystem::create_directory(obstacle);
  journal->begin_to_shorten();
  ASSERT_TRUE(journal->add(std::span(changes).subspan(3, 4)));
  auto done = journal->finish_shortening();
  while (done && !*done) done = journal->finish_shortening();
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("journal.new"));
  EXPECT_FALSE(journal->is_shortening());
  EXPECT_EQ(read().checkpoint, made_of(std::span(changes).first(7)));
  std::filesystem::remove(obstacle);
  journal->begin_to_shorten();
  ASSERT_TRUE(journal->add(std::span(changes).subspan(7)));
  for (done = false; done && !*done;) done = journal->finish_shortening();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read().checkpoint, made_of(changes));
}

TEST_F(JournalKept, IsRewrittenWhileAThreadShortensIt) {
  const auto changes = some_changes();
  auto journal = begin();
  journal->begin_to_shorten();
  ASSERT_TRUE(journal->rewrite(made_of(std::span(changes).first(7))));
  EXPECT_FALSE(journal->is_shortening()) << "its work is lost";
  ASSERT_TRUE(journal->add(std::span(changes).subspan(7)));
  EXPECT_EQ(read().checkpoint, made_of(changes));
}

TEST_F(JournalKept, IsForItsOwnerAlone) {
  ASSERT_TRUE(begin());
  EXPECT_EQ(std::filesystem::status(file()).permissions(), std::filesystem::perms(0600));
}

TEST(JournalRecord, ThatIsTruncatedIsNotThereYet) {
  std::string record = a_record();
  std::string_view bytes = record;
  EXPECT_TRUE(decode(bytes));
  EXPECT_TRUE(bytes.empty());
  bytes = std::string_view(record).substr(0, 5);
  EXPECT_EQ(decode(bytes).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace gpumem::host
