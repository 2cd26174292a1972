#pragma once
#include <map>
#include <mutex>

#include "tests/support/allocator/fake_backing.h"
#include "tests/support/allocator/fake_streams.h"

namespace gpumem::test {

/// What every byte of every extent was last used for. Ends the program (broken_rule.h) when a block is handed
/// out to a stream that does not come after the work of the block before, when blocks overlap, when one lies
/// where nothing is mapped or in an extent's former mapping, and when an extent is unmapped or mapped
/// elsewhere that is in use, or unmapped where work may still use it that the host does not know to be over.
/// Threads  any. A block is told of before it is given to the allocator, and after it was had from it.
class Shadow final : public FakeBacking::Observer {
 public:
  Shadow(FakeBacking& backing, FakeStreams& streams);
  ~Shadow() override;

  /// Block `id` (not zero) takes [at, at + bytes) for work on `stream`; the same for more of the same block.
  void take(std::uint64_t id, allocator::Address at, Bytes bytes, StreamHandle stream);
  /// [at, at + bytes) of block `id` is used up to `until`, and up to `recorded` of another stream.
  void free(std::uint64_t id, allocator::Address at, Bytes bytes, FakeStreams::Moment until,
            FakeStreams::Moment recorded = {});

  /// What is mapped from `at` to `at` + `room` on is its block's until that gives it up.
  void keep_room(allocator::Address at, Bytes room);
  void give_up_room(allocator::Address at);

  /// Bytes of mapped extents in which no block is, nor within `margin` of them: what blocks take may be more
  /// than they have.
  Bytes in_free_extents(Bytes margin = kibibytes(128)) const;

  void maps(allocator::Address at, const allocator::Extent& extent) override;
  void unmaps(allocator::Address at, const allocator::Extent& extent) override;

 private:
  struct Use {
    std::uint64_t end = 0;  ///< offset in the extent
    std::uint64_t id = 0;   ///< of the block; zero: it was freed
    FakeStreams::Moment until;
    FakeStreams::Moment recorded{};
  };
  using Uses = std::map<std::uint64_t, Use>;  ///< by offset in the extent; what is not there was never used
  struct Mapped {
    allocator::Extent extent;
    Uses uses;
  };

  /// Calls `each(uses, from, to)`, offsets in the extent, for each extent of a range that is mapped.
  template <class Each>
  void for_each(std::uint64_t id, allocator::Address at, Bytes bytes, Each&& each);
  /// Whether a block is in [from, to), offsets in the extent.
  static bool has_block(const Mapped& mapped, std::uint64_t from, std::uint64_t to);
  bool is_in_room(allocator::Address at) const;
  bool is_latest(allocator::Address at, const allocator::Extent& extent) const;
  static void replace(Uses& uses, std::uint64_t from, std::uint64_t to, const Use& with);
  void check_behind(StreamHandle stream, FakeStreams::Moment moment, const std::string& block) const;
  void check_turn(const Uses& uses, std::uint64_t from, std::uint64_t to, std::uint64_t id,
                  StreamHandle stream, allocator::Address at);

  FakeBacking& backing_;
  FakeStreams& streams_;
  mutable std::mutex mutex_;
  std::map<allocator::Address, Mapped> mapped_;
  std::map<std::uint64_t, allocator::Address> latest_;      ///< extents by id: where they were mapped last
  std::map<allocator::Address, allocator::Address> rooms_;  ///< begin to end
};

}  // namespace gpumem::test
