#include <algorithm>
#include <array>

#include "bench/allocator/traces/dice.h"
#include "bench/allocator/traces/tape.h"
#include "bench/allocator/traces/workloads.h"

namespace gpumem::bench {
namespace {

constexpr std::uint64_t kSingle = 4;

// Zaremba et al., "Recurrent Neural Network Regularization", 2014: the medium model of section 4.1, with
// batches of 20 and 35 steps in time, each a few blocks of its own.
class Recurrent {
 public:
  explicit Recurrent(std::uint64_t seed) : dice_(seed) {
    for (const std::uint64_t count : kParameters) tape_.allocate(count * kSingle);
  }

  void iteration() {
    tape_.free_all(gradients_);
    const std::uint64_t steps = 20 + dice_.below(16);
    const TapeBlock words = tape_.allocate(kRows * steps * 8);
    std::vector<TapeBlocks> kept(steps);
    TapeBlocks losses;
    for (TapeBlocks& of_step : kept) forward(of_step, losses);
    project(steps);
    for (std::size_t i = steps; i-- > 0;) backward(kept[i]);
    for (const std::uint64_t count : kParameters) gradients_.push_back(tape_.allocate(count * kSingle));
    tape_.free_all(losses);
    tape_.free(words);
    for (const std::uint64_t count : kParameters) tape_.temporary(count < 8192 ? count * kSingle : kSingle);
  }
  AllocationTrace finish() { return tape_.finish("small"); }

 private:
  static constexpr std::uint64_t kRows = 20, kHidden = 650, kVocabulary = 10'000;
  static constexpr std::array<std::uint64_t, 8> kParameters{
      kVocabulary * kHidden, 2 * kHidden * 4 * kHidden, 4 * kHidden, 4 * kHidden, 2 * kHidden * 4 * kHidden,
      4 * kHidden,           kVocabulary* kHidden,      kVocabulary};

  void forward(TapeBlocks& kept, TapeBlocks& losses) {
    kept.push_back(tape_.allocate(kRows * kHidden * kSingle));
    for (int layer = 0; layer < 2; ++layer) {
      const TapeBlock sums = tape_.allocate(kRows * 4 * kHidden * kSingle);
      for (int gate = 0; gate < 4; ++gate) kept.push_back(tape_.allocate(kRows * kHidden * kSingle));
      tape_.free(sums);
      for (int state = 0; state < 2; ++state) kept.push_back(tape_.allocate(kRows * kHidden * kSingle));
      kept.push_back(tape_.allocate(kRows * kHidden));  // dropout's mask
    }
    losses.push_back(tape_.allocate(kSingle));
  }
  void project(std::uint64_t steps) {
    const TapeBlock logits = tape_.allocate(kRows * steps * kVocabulary * kSingle);
    const TapeBlock probabilities = tape_.allocate(logits.bytes);
    tape_.free(logits);
    for (std::uint64_t i = 0; i < steps; ++i) tape_.temporary(kRows * kSingle);
    tape_.free(probabilities);
  }
  void backward(TapeBlocks& kept) {
    while (!kept.empty()) {
      const TapeBlock gradient = tape_.allocate(kept.back().bytes);
      tape_.free(kept.back());
      kept.pop_back();
      tape_.free(gradient);
    }
  }

  Tape tape_;
  Dice dice_;
  TapeBlocks gradients_;
};

// Blocks between 64 KiB and 256 MiB.
class Holding {
 public:
  Holding(Tape& tape, Dice& dice) : tape_(tape), dice_(dice) {}

  void fill(std::uint64_t target) {
    while (bytes_ < target) {
      const auto drawn = static_cast<std::uint64_t>(dice_.log_normal(4 << 20, 1.8));
      held_.push_back(tape_.allocate(std::clamp<std::uint64_t>(drawn, 64 << 10, 256 << 20)));
      bytes_ += held_.back().bytes;
    }
  }
  /// Whichever of them go first.
  void drain(std::uint64_t target) {
    while (bytes_ > target) {
      std::swap(held_[dice_.below(held_.size())], held_.back());
      bytes_ -= held_.back().bytes;
      tape_.free(held_.back());
      held_.pop_back();
    }
  }
  /// Exchanges some blocks for others, several times.
  void exchange(int times) {
    const std::uint64_t target = bytes_;
    for (int i = 0; i < times; ++i) {
      drain(target - target / 8);
      fill(target);
    }
  }

 private:
  Tape& tape_;
  Dice& dice_;
  TapeBlocks held_;
  std::uint64_t bytes_ = 0;
};

constexpr std::uint64_t kLive = 2ULL << 30, kBurst = 14ULL << 30;

}  // namespace

AllocationTrace small_recurrent(std::uint64_t seed) {
  Recurrent recurrent(seed);
  for (int i = 0; i < 60; ++i) recurrent.iteration();
  return recurrent.finish();
}

AllocationTrace burst(std::uint64_t seed) {
  Tape tape;
  Dice dice(seed);
  Holding live(tape, dice), passing(tape, dice);
  live.fill(kLive);
  for (int i = 0; i < 2; ++i) {
    live.exchange(200);
    passing.fill(kBurst);
    passing.drain(0);
  }
  return tape.finish("burst");
}

AllocationTrace scattered_burst(std::uint64_t seed) {
  Tape tape;
  Dice dice(seed);
  Holding live(tape, dice);
  live.fill(kLive);
  live.exchange(200);
  live.fill(kLive + kBurst);
  live.drain(kLive);
  return tape.finish("scattered_burst");
}

}  // namespace gpumem::bench
