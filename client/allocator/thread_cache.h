#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/allocator/shelves.h"
#include "gpumem/allocator.h"

namespace gpumem::allocator {

class Engine;

/// Free blocks of one thread, by stream and class, so that most calls take no lock.
/// Between enter() and leave() it is the owner's. Another thread that wants what is in it, under the
/// allocator's lock, stops it first: the owner's next enter() then fails, and its way leads to that lock. The
/// owner pays two plain stores and a load; the other one has the kernel put a barrier into every running
/// thread.
/// Threads  as said for each function: the owner, or whoever has the allocator's lock and has stopped it or
/// is
///          the owner.
class ThreadCache {
 public:
  struct Home {
    std::mutex mutex;
    Engine* engine = nullptr;  ///< null: closed
  };

  ThreadCache(std::shared_ptr<Home> home, CacheNumber number);

  // The owner, without a lock.
  /// The address of a block, or zero. The shortest way: of the stream that was used last.
  Address take(std::uint64_t bytes, StreamHandle stream, std::uint32_t now);
  /// Keeps the block at `address`, the one of `piece` that `slot` is, if it is in use and was asked for with
  /// `bytes`. False: it does not, and nothing has changed. The shortest way: of the stream that was used
  /// last, and handed out here.
  bool put(const Piece& piece, Slot& slot, Address address, std::uint64_t bytes, StreamHandle stream);
  /// The same of any stream that it knows, and wherever the block was handed out.
  Address take_any(std::uint64_t bytes, StreamHandle stream, std::uint32_t now);
  bool put_any(const Piece& piece, Slot& slot, Address address, std::uint64_t bytes, StreamHandle stream);
  /// The thread ends.
  void retire();

  // The owner under the allocator's lock, or another one that has stopped it.
  using Emptied = std::function<void(const Block&, StreamIndex)>;
  /// Makes `stream`, in the table `index`, the one that is used now.
  void use(StreamHandle stream, StreamIndex index);
  bool is_of(StreamHandle stream) const { return current_->handle == stream && current_->index != kNoStream; }
  StreamIndex stream() const { return current_->index; }
  /// How many bytes it may hold.
  void set_budget(std::uint64_t bytes) { budget_ = bytes; }
  /// How many blocks of a class it would take, of which it has none.
  std::size_t wants(ClassIndex size_class) const;
  /// Adds free blocks of the stream in use; they become the cache's. At most as many as it wants.
  void fill(ClassIndex size_class, const Block* blocks, std::size_t count);
  /// Makes room for one more block of the class on the stream in use. False: it never has any.
  bool make_room(ClassIndex size_class, const Emptied& into);
  /// As take() and put() of the stream in use; zero: there is none.
  Address take_locked(std::uint64_t bytes, std::uint32_t now);
  bool put_locked(const Piece& piece, Slot& slot, Address address, std::uint64_t bytes) {
    return push<true>(piece, slot, address, bytes);
  }
  /// Takes everything out, of one stream or (kNoStream) all. Another one than the owner leaves what is of the
  /// owner's default stream: only the owner can tell where its work is.
  void empty(const Emptied& into, bool by_owner, StreamIndex only = kNoStream);
  std::vector<StreamIndex> per_thread_streams() const;
  /// Knows the stream not any more; it is empty.
  void drop_stream(StreamIndex index);

  // Another thread, under the allocator's lock.
  /// Whether the kernel can put barriers into other threads, without which there can be no caches.
  static bool can_be_stopped();
  /// After this, until resume(), no owner is in one of `caches`.
  static void stop(std::span<ThreadCache* const> caches);
  void resume() { stopped_.store(false, std::memory_order_seq_cst); }

  // Any, under the allocator's lock.
  bool belongs_to(const std::shared_ptr<Home>& home) const { return home_ == home; }
  CacheNumber number() const { return number_; }
  std::uint64_t bytes() const;
  /// Served from here, by class.
  std::uint64_t hits(ClassIndex size_class) const;
  /// Changes whenever the cache is used.
  std::uint64_t uses() const;

 private:
  /// A stack of blocks, from `floor` to `top`.
  struct Bin {
    std::atomic<Block*> top{nullptr};
    Block* floor = nullptr;
    Block* ceiling = nullptr;
    std::atomic<std::uint64_t> hits{0};

    std::size_t count() const {
      return static_cast<std::size_t>(top.load(std::memory_order_relaxed) - floor);
    }
    std::size_t room() const { return static_cast<std::size_t>(ceiling - floor); }
  };
  struct StreamBins {
    StreamHandle handle = nullptr;
    StreamIndex index = kNoStream;
    BlockWord handed_out;                  ///< what its blocks' words are, but for the bytes
    std::array<Bin, kClasses + 1> bins{};  ///< that of kNoClass never has room
    std::array<std::unique_ptr<Block[]>, kClasses> blocks;
  };

  bool enter();
  void leave() { busy_.store(false, std::memory_order_release); }
  bool change_to(StreamHandle stream);
  /// Zero: there is none, or the next one is somebody else's and is here no more.
  Address pop(std::uint64_t bytes, std::uint32_t now);
  /// `wherever`  the block was handed out; false: here, on the stream in use.
  template <bool wherever>
  bool push(const Piece& piece, Slot& slot, Address address, std::uint64_t bytes);
  bool claim(Slot& slot, std::uint64_t bytes);
  std::size_t room_for(ClassIndex size_class) const;
  void take_rooms(const Emptied& into);
  void take_out(StreamBins& bins, ClassIndex size_class, std::size_t count, const Emptied& into);

  std::atomic<bool> busy_{false};
  std::atomic<bool> stopped_{false};
  const CacheNumber number_;
  const BlockWord cached_;  ///< the word of what is here
  StreamBins* current_;
  std::uint64_t budget_ = 0;   ///< how many bytes it may hold
  std::uint64_t granted_ = 0;  ///< of it, to bins
  int without_room_ = 0;       ///< blocks that found none since it was shared out
  std::vector<std::unique_ptr<StreamBins>> streams_;
  std::array<std::uint64_t, kClasses> dropped_hits_{};  ///< of streams that were dropped
  StreamBins none_;
  const std::shared_ptr<Home> home_;
};

// ---- The fast way ----

#if defined(__SANITIZE_THREAD__)
#define GPUMEM_PLAIN_FENCES 0  // the sanitizer knows nothing of the kernel's barrier
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GPUMEM_PLAIN_FENCES 0
#endif
#endif
#ifndef GPUMEM_PLAIN_FENCES
#define GPUMEM_PLAIN_FENCES 1
#endif

inline bool ThreadCache::enter() {
#if GPUMEM_PLAIN_FENCES
  busy_.store(true, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (!stopped_.load(std::memory_order_acquire)) [[likely]]
    return true;
#else
  busy_.store(true, std::memory_order_seq_cst);
  if (!stopped_.load(std::memory_order_seq_cst)) return true;
#endif
  leave();
  return false;
}

inline Address ThreadCache::take(std::uint64_t bytes, StreamHandle stream, std::uint32_t now) {
  if (!enter()) [[unlikely]]
    return 0;
  const Address address = current_->handle == stream ? pop(bytes, now) : 0;
  leave();
  return address;
}

inline bool ThreadCache::put(const Piece& piece, Slot& slot, Address address, std::uint64_t bytes,
                             StreamHandle stream) {
  if (!enter()) [[unlikely]]
    return false;
  const bool kept = current_->handle == stream && push<false>(piece, slot, address, bytes);
  leave();
  return kept;
}

inline Address ThreadCache::pop(std::uint64_t bytes, std::uint32_t now) {
  Bin& bin = current_->bins[class_of(bytes)];
  Block* top = bin.top.load(std::memory_order_relaxed);
  if (top == bin.floor) return 0;
  const Block block = *--top;
  bin.top.store(top, std::memory_order_relaxed);
  // Two threads that freed one block at the same time may both have it here: the last to say so has it.
  if (block.slot->get() != cached_) [[unlikely]]
    return 0;
  block.slot->set(current_->handed_out.with_bytes(bytes));
  block.slot->born.store(now, std::memory_order_relaxed);
  bin.hits.store(bin.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return block.address;
}

// What this cache handed out on this stream, without a tag, is told by its whole word.
template <bool wherever>
inline bool ThreadCache::push(const Piece& piece, Slot& slot, Address address, std::uint64_t bytes) {
  Bin& bin = current_->bins[piece.size_class];
  Block* top = bin.top.load(std::memory_order_relaxed);
  if (top == bin.ceiling) [[unlikely]]
    return false;
  if (bytes - 1 < BlockWord::kBytesMost && slot.get() == current_->handed_out.with_bytes(bytes)) [[likely]] {
    slot.set(cached_);
  } else if (!wherever || !claim(slot, bytes)) {
    return false;
  }
  *top = {address, &slot};
  bin.top.store(top + 1, std::memory_order_relaxed);
  return true;
}

}  // namespace gpumem::allocator
