// Many processes that share and die: nothing is lost, nothing is left, nobody waits for ever.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>

#include "tests/contract/driver/fixture.h"
#include "tests/contract/driver/processes/stress_member.h"

namespace gpumem::contract {
namespace {

using Clock = std::chrono::steady_clock;
using Stress = DriverTest;

constexpr std::chrono::seconds kStuck{40};  // without a single round of anybody: a deadlock

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// The members, their mailboxes and their board.
class Crowd {
 public:
  Crowd(std::size_t count, std::uint64_t seed, std::chrono::seconds length)
      : random_(seed), patience_(static_cast<unsigned>(length.count()) + 100) {
    void* const page =
        ::mmap(nullptr, sizeof(StressBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(page, MAP_FAILED);
    board_ = new (page) StressBoard;
    for (std::size_t i = 0; i < count; ++i) {
      int ends[2] = {-1, -1};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
      mailboxes_.push_back({UniqueFd(ends[0]), UniqueFd(ends[1])});
    }
    members_.resize(count);
    watches_.resize(count);
    for (std::size_t i = 0; i < count; ++i) start(i);
  }
  ~Crowd() { ::munmap(board_, sizeof(StressBoard)); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  const StressBoard& board() const { return *board_; }

  /// Kills one and starts another in its place, if something has arrived since the last time: where starting
  /// takes long, a faster pace would leave nobody at work. Whether it did.
  bool kill_and_replace_one() {
    const std::uint64_t received = board_->received;
    if (std::exchange(last_received_, received) == received) return false;
    const std::size_t victim = random_() % members_.size();
    members_[victim]->kill();
    start(victim);
    return true;
  }

  /// Waits up to `time` for a member to end, which none should. False if one did, or if nobody gets on.
  bool goes_well(std::chrono::milliseconds time) {
    std::vector<pollfd> all;
    for (const UniqueFd& watch : watches_) all.push_back({watch.get(), POLLIN, 0});
    if (::poll(all.data(), all.size(), static_cast<int>(time.count())) > 0) {
      ADD_FAILURE() << "a member has ended by itself";
      return false;
    }
    const auto now = Clock::now();
    if (const std::uint64_t rounds = board_->rounds; rounds != last_rounds_) {
      last_rounds_ = rounds;
      last_progress_ = now;
    }
    if (now - last_progress_ < kStuck) return true;
    ADD_FAILURE() << "nobody has got on for " << kStuck.count() << " s";
    return false;
  }

  /// All come to their end, with success.
  void finish() {
    board_->stop = true;
    for (auto& member : members_) member->join();
    mailboxes_.clear();  // with the descriptors that nobody took out
  }

  std::uint64_t random() { return random_(); }

 private:
  void start(std::size_t index) {
    const std::uint64_t seed = random_();
    members_[index] = std::make_unique<Process>([this, index, seed](Channel&) {
      ::alarm(patience_);
      run_stress_member(*board_, mailboxes_, index, seed);
    });
    watches_[index].reset(static_cast<int>(::syscall(SYS_pidfd_open, members_[index]->pid(), 0)));
    EXPECT_TRUE(watches_[index].valid());
  }

  std::mt19937_64 random_;
  const unsigned patience_;
  StressBoard* board_ = nullptr;
  std::vector<Mailbox> mailboxes_;
  std::vector<std::unique_ptr<Process>> members_;
  std::vector<UniqueFd> watches_;
  std::uint64_t last_rounds_ = 0, last_received_ = 0;
  Clock::time_point last_progress_ = Clock::now();
};

// Where a simulated machine keeps its memory; empty for a real driver.
std::filesystem::path data_folder() {
  std::ifstream machine(driver_folder() / "machine");
  std::string specification, word, id;
  std::getline(machine, specification);
  return machine >> word >> id ? std::filesystem::path("/dev/shm") / ("gpumem-sim-" + id)
                               : std::filesystem::path();
}

void expect_no_extent_files() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(data_folder(), none)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("extent-")) << entry.path();
  }
}

TEST_F(Stress, LosesAndLeavesNothingWhileMembersAreKilled) {
  const std::chrono::seconds length(number_from("GPUMEM_STRESS_SECONDS", 5));
  const std::uint64_t seed = number_from("GPUMEM_STRESS_SEED", std::random_device{}());
  const std::size_t count = number_from("GPUMEM_STRESS_MEMBERS", 32);
  std::printf("[     SEED ] GPUMEM_STRESS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  {
    Crowd crowd(count, seed, length);
    std::uint64_t killed = 0;
    // On a real driver the members' contexts are made one after the other, for longer than that.
    while (crowd.board().received == 0 && crowd.goes_well(std::chrono::milliseconds(10))) {
    }
    const auto end = Clock::now() + length;
    while (Clock::now() < end && crowd.goes_well(std::chrono::milliseconds(crowd.random() % 60))) {
      killed += crowd.kill_and_replace_one() ? 1 : 0;
    }
    crowd.finish();
    const StressBoard& board = crowd.board();
    std::printf("[    FIGURE ] %llu killed, %llu created, %llu refused, %llu sent, %llu received\n",
                static_cast<unsigned long long>(killed),
                static_cast<unsigned long long>(board.created.load()),
                static_cast<unsigned long long>(board.refused.load()),
                static_cast<unsigned long long>(board.sent.load()),
                static_cast<unsigned long long>(board.received.load()));
    EXPECT_GT(killed, 0U);
    EXPECT_GT(board.created.load(), 0U);
    EXPECT_GT(board.received.load(), 0U);
    EXPECT_LE(board.received.load(), board.sent.load() + killed) << "a member may be killed between the two";
  }
  expect_used(0);
  expect_no_extent_files();
}

}  // namespace
}  // namespace gpumem::contract
