#pragma once
#include <chrono>
#include <random>

#include "tests/model/allocator/world.h"

namespace gpumem::test {

/// One thread's random use of an engine: blocks of all sizes on several streams, freed in any order and by
/// any thread, bad calls among them. Ends the program (broken_rule.h) when an answer is not as documented.
/// Deterministic when it is its world's only one.
class Program {
 public:
  Program(World& world, std::uint64_t seed, unsigned thread);
  /// What it has is left to others.
  ~Program();

  void step();

 private:
  StreamHandle some_stream();
  StreamHandle own_stream();
  /// Counts a block that was had without a lock.
  void had_fast(Block block);
  Bytes some_size();
  std::size_t some_block() { return random_() % blocks_.size(); }
  bool chance(unsigned percent) { return random_() % 100 < percent; }
  bool is_alone() const { return world_.shape().threads == 1; }

  // The work a program gives. An unshadowed one gives none: the fake streams' lock would order its threads.
  FakeStreams::Moment use(StreamHandle stream);
  FakeStreams::Moment now(StreamHandle stream);
  void put_behind(StreamHandle stream, FakeStreams::Moment moment);

  void allocate();
  void had(Block block);
  void check_refusal(Bytes bytes, const GrowError& error);
  void free(Block block);
  FakeStreams::Moment use_recorded(const Block& block);
  void free_some();
  /// Frees a block that another thread has left, if there is one.
  void free_left();
  void repeat();
  void extend();
  void misuse();
  void work();
  void end_stream();
  void capture();
  void trim();
  void background_tick();
  void compare_figures();
  void let_others_take();

  World& world_;
  allocator::Engine& engine_;
  FakeStreams& streams_;
  std::mt19937_64 random_;
  unsigned thread_;
  std::vector<Bytes> favourites_;
  std::vector<Block> blocks_;
  std::vector<allocator::Address> past_;  ///< where blocks once were
  std::chrono::milliseconds later_{0};
  bool shortage_ = false;  ///< others have taken memory
};

}  // namespace gpumem::test
