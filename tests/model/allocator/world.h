#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/allocator/engine.h"
#include "tests/model/allocator/shadow.h"

namespace gpumem::test {

/// What a random program is like.
struct Shape {
  std::string name;
  Bytes limit;
  Bytes largest;             ///< of a block
  unsigned live = 400;       ///< blocks of a thread, about
  bool painted = false;      ///< real host memory, every block painted with its number
  bool shadowed = true;      ///< without: nothing of the test's orders the threads, for the thread sanitizer
  bool contended = false;    ///< others take some of the memory and give it back
  bool own_streams = false;  ///< nearly all work is on streams of the thread's own, which end often
  bool announced = false;    ///< every stream is released before it ends
  unsigned threads = 1;

  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }
};

/// A block that a program has.
struct Block {
  std::uint64_t id = 0;
  allocator::Address at = 0;
  Bytes bytes;
  Bytes room{};
  StreamHandle stream = nullptr;
  FakeStreams::Moment used{};  ///< the last work on it
  std::string tag{};
};

/// An engine over fakes, its checker, and what the threads of a program share.
class World {
 public:
  explicit World(const Shape& shape);
  ~World();

  const Shape& shape() const { return shape_; }
  allocator::Engine& engine() { return *engine_; }
  FakeBacking& backing() { return backing_; }
  FakeStreams& streams() { return streams_; }
  Shadow* shadow() { return shadow_.get(); }
  std::uint64_t next_id() { return ids_.fetch_add(1, std::memory_order_relaxed) + 1; }
  Tag tag(const std::string& name) const { return tags_.at(name); }

  /// For another thread to free, and one that another thread has left.
  void leave(Block block);
  std::optional<Block> find();

  /// Frees what is left, closes the engine, and demands that nothing is held and no mark is kept.
  void finish();

  /// Counts, without ordering threads: how often something was seen that a run must have seen to show
  /// anything.
  class Count {
   public:
    void operator++() { count_.fetch_add(1, std::memory_order_relaxed); }
    operator std::uint64_t() const { return count_.load(std::memory_order_relaxed); }  // NOLINT(*-explicit-*)

   private:
    std::atomic<std::uint64_t> count_{0};
  };
  struct Seen {
    Count blocks, fast, fast_on_own, refusals, extended, no_room, trims, bad, foreign_frees;
  } seen;

 private:
  Shape shape_;
  FakeBacking backing_;
  FakeStreams streams_;
  std::unique_ptr<Shadow> shadow_;
  std::unique_ptr<allocator::Engine> engine_;
  std::atomic<std::uint64_t> ids_{0};
  std::map<std::string, Tag> tags_;
  std::mutex mutex_;
  std::vector<Block> left_;
};

/// Writes a block's number to its beginning, its end and places between; whether it is still there.
void paint(const Block& block, Bytes from = {});
bool is_painted(const Block& block);

}  // namespace gpumem::test
