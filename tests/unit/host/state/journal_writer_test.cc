// The writer of the journal shortens it, and keeps what cannot be written. The time of the thread that
// decides is everybody's.
#include "daemon/host/state/journal_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <new>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/unit/core/policies.h"
#include "tests/unit/host/state/journal_fixture.h"

namespace {

/// Bytes that the calling thread has allocated, freed ones included.
thread_local std::size_t allocated = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  allocated += bytes;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace gpumem::host {
namespace {

using core::Checkpoint;
using test::read_file;

/// Of the calling thread.
core::Duration processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

core::Policy policy_for_many() {
  core::Policy policy = core::small_policy();
  policy.others = {{{}, mebibytes(64)}};
  return policy;
}

struct JournalWritten : JournalKept {
  /// Has a session come and go, and its changes written, so often that the journal is long; or until
  /// `is_enough`.
  template <class IsEnough>
  void write_changes(core::TimePoint now, IsEnough is_enough) {
    core::Peer peer;
    peer.pid = 42;
    peer.uid = 1;
    for (int i = 0; i < 200'000 && !is_enough(); ++i) {
      const auto session = broker_.open_session(peer, std::string(100, 'x'), now);
      ASSERT_TRUE(session);
      write(now);
      broker_.session_ended(*session, core::SessionEnd::kExited, now);
      write(now);
      std::vector<core::Effect> ignored;
      broker_.outbox().take_effects(ignored);
    }
  }
  void write(core::TimePoint now) {
    const std::size_t before = allocated;
    ASSERT_TRUE(writer_.write(broker_, now));
    largest_write_ = std::max(largest_write_, allocated - before);
  }
  /// Fills the broker with `sessions` of as many slices as a session may have.
  void open_slices(int sessions, core::TimePoint now) {
    core::Peer peer;
    peer.pid = 43;
    for (int i = 0; i < sessions; ++i) {
      peer.uid = static_cast<std::uint32_t>(100 + i);
      const auto session = broker_.open_session(peer, "with slices", now);
      ASSERT_TRUE(session);
      for (int slice = 0; slice < 64; ++slice)
        ASSERT_TRUE(broker_.open_slice(*session, {"GPU-0", mebibytes(2), std::string(100, 'x')}));
    }
  }
  /// Sessions `first` to `last` of open_slices() end, one every 2 s, while nothing can be written.
  void end_sessions_in_vain(std::uint64_t first, std::uint64_t last, core::TimePoint now) {
    for (std::uint64_t id = first; id <= last; ++id) {
      broker_.session_ended(SessionId{id}, core::SessionEnd::kExited, now);
      const std::size_t before = allocated;
      EXPECT_FALSE(writer_.write(broker_, now + std::chrono::seconds(2 * (id - first))));
      largest_write_ = std::max(largest_write_, allocated - before);
    }
  }
  /// What a copy of the whole state allocates.
  std::size_t copy() const {
    const std::size_t before = allocated;
    static_cast<void>(broker_.checkpoint());
    return allocated - before;
  }

  static constexpr std::uintmax_t kLong = std::uintmax_t{1} << 20;
  core::Broker broker_{policy_for_many()};
  JournalWriter writer_;
  std::size_t largest_write_ = 0;  ///< the most bytes that one write() allocated
};

TEST_F(JournalWritten, ThatCannotBeShortenedIsTriedAgainAfterAPauseAndGoesOn) {
  const core::TimePoint now{std::chrono::hours(1)};
  ASSERT_TRUE(writer_.begin(folder_.path(), kDevices, broker_));
  const std::filesystem::path obstacle = folder_ / "journal.new";
  std::filesystem::create_directory(obstacle);
  write_changes(now, [&] { return size() > kLong + kLong / 8; });
  std::filesystem::remove(obstacle);
  const std::uintmax_t before = size();
  write_changes(now + std::chrono::milliseconds(900), [&] { return size() > before + 10'000; });
  EXPECT_GT(size(), before) << "during the pause it grows on";
  write_changes(now + std::chrono::seconds(2), [&] { return size() < kLong / 2; });
  EXPECT_LT(size(), kLong / 2);
}

// The deciding thread writes. The state of others is no work for it.
TEST_F(JournalWritten, IsShortenedWithoutACopyOfTheStateByItsWriter) {
  const core::TimePoint now{std::chrono::hours(1)};
  open_slices(200, now);
  ASSERT_TRUE(writer_.begin(folder_.path(), kDevices, broker_));
  const std::uintmax_t begun = size();
  ASSERT_EQ(broker_.checkpoint().slices.size(), 200U * 64);
  for (int time = 0; time < 3; ++time) {
    std::uintmax_t most = 0;
    write_changes(now, [&] {
      most = std::max(most, size());
      return size() < most;
    });
    EXPECT_GT(most, 4 * begun);
    EXPECT_LT(size(), most);
  }
  EXPECT_LT(largest_write_, copy() / 10);
  EXPECT_EQ(read().checkpoint, broker_.checkpoint());
}

TEST_F(JournalWritten, ThatIsDamagedIsWrittenAnewWhenItIsToBeShortened) {
  const core::TimePoint now{std::chrono::hours(1)};
  ASSERT_TRUE(writer_.begin(folder_.path(), kDevices, broker_));
  write_changes(now, [&] { return size() > kLong / 2; });
  std::string bytes = read_file(file());
  bytes[bytes.size() / 2] ^= 1;
  {
    std::fstream in_place(file(), std::ios::in | std::ios::out | std::ios::binary);
    in_place.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  ASSERT_NE(read().damage, "");
  write_changes(now, [&] { return size() < kLong / 2; });
  EXPECT_LT(size(), kLong / 2);
  EXPECT_EQ(read().damage, "");
  EXPECT_EQ(read().checkpoint, broker_.checkpoint());
}

// To write the state of everybody in vain, over and over, would hold up the thread that decides.
TEST_F(JournalWritten, CostsItsWriterTheChangesAloneWhileTheDiskIsFull) {
  const core::TimePoint now{std::chrono::hours(1)};
  open_slices(200, now);
  ASSERT_TRUE(writer_.begin(folder_.path(), kDevices, broker_));
  {
    const FullDisk full(size() + 10);
    end_sessions_in_vain(1, 30, now);
    EXPECT_EQ(read().damage, "");
  }
  EXPECT_LT(largest_write_, copy() / 10);
  EXPECT_EQ(read().checkpoint.sessions.size(), 200U) << "none of it is in the file";
  write(now + std::chrono::minutes(5));
  EXPECT_FALSE(writer_.is_failing());
  EXPECT_EQ(read().checkpoint, broker_.checkpoint());
  write_changes(now + std::chrono::minutes(6), [n = 0]() mutable { return ++n > 3; });
  EXPECT_EQ(read().checkpoint, broker_.checkpoint());
}

// More than the writer keeps: a thread writes it all anew, once there is room.
TEST_F(JournalWritten, LosesNothingHoweverMuchChangesWhileTheDiskIsFull) {
  core::TimePoint now{std::chrono::hours(1)};
  open_slices(20, now);
  ASSERT_TRUE(writer_.begin(folder_.path(), kDevices, broker_));
  {
    const FullDisk full(size() / 2);
    for (std::uint64_t round = 0; round < 3; ++round) {
      for (int i = 0; i < 1200; ++i) broker_.outbox().record(Checkpoint::AccountGone{std::string(1000, 'x')});
      end_sessions_in_vain(round + 1, round + 1, now += std::chrono::minutes(1));
    }
  }
  EXPECT_TRUE(test::eventually([&] {
    broker_.outbox().record(Checkpoint::AccountGone{"y"});  // without a change nothing is shortened
    return writer_.write(broker_, now += std::chrono::minutes(1)) && size() < kLong / 2;
  }));
  EXPECT_EQ(read().damage, "");
  EXPECT_EQ(read().checkpoint, broker_.checkpoint());
}

TEST_F(JournalWritten, IsWrittenOnceMoreWhenTheBrokerEnds) {
  const core::TimePoint now{std::chrono::hours(1)};
  open_slices(3, now);
  ASSERT_TRUE(writer_.begin(folder_.path(), kDevices, broker_));
  {
    const FullDisk full(size() + 10);
    end_sessions_in_vain(1, 2, now);
  }
  writer_.close(broker_);
  EXPECT_EQ(read().checkpoint, broker_.checkpoint());
}

// The sessions of one user come and go while others have much.
TEST(JournalState, TakesTheEndOfASessionInTheTimeOfWhatThatHad) {
  const auto time_of_ends = [](std::uint64_t slices) {
    Checkpoint checkpoint;
    checkpoint.apply(Checkpoint::Session{SessionId{1}, {}, "", "", {}, false});
    for (std::uint64_t i = 1; i <= slices; ++i)
      checkpoint.apply(Checkpoint::Slice{SliceId{i}, SessionId{1}, 0, mebibytes(2), ""});
    const core::Duration before = processor_time();
    for (std::uint64_t i = 2; i < 4000; ++i) {
      checkpoint.apply(Checkpoint::Session{SessionId{i}, {}, "", "", {}, false});
      checkpoint.apply(Checkpoint::Suspect{SessionId{i}, {}});
      checkpoint.apply(Checkpoint::SessionGone{SessionId{i}});
    }
    const core::Duration time = processor_time() - before;
    EXPECT_EQ(checkpoint.slices.size(), slices);
    checkpoint.apply(Checkpoint::SessionGone{SessionId{1}});
    EXPECT_TRUE(checkpoint.slices.empty());
    return time;
  };
  const core::Duration alone = time_of_ends(1);
  EXPECT_LT(time_of_ends(20'000), 30 * alone);
}

}  // namespace
}  // namespace gpumem::host
