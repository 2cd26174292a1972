#include "client/allocator/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "client/fork_guard.h"

namespace gpumem::allocator {
namespace {

// Of what is committed, what one thread's cache may hold.
constexpr std::uint64_t kCachePart = 128;
constexpr std::uint64_t kLeastCache = mebibytes(1).count;
constexpr std::uint64_t kMostCache = mebibytes(4).count;

Error invalid(Address address, const std::string& what) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (; address != 0 || hex.empty(); address >>= 4) hex.insert(hex.begin(), kDigits[address & 15]);
  return {Code::kInvalidArgument, "0x" + hex + " " + what};
}

}  // namespace

Engine::Engine(std::unique_ptr<Backing> backing, std::unique_ptr<StreamPort> streams,
               const EngineOptions& options)
    : generation_(client::process_generation()),
      options_(options),
      backing_(std::move(backing)),
      port_(std::move(streams)),
      base_(backing_->base()),
      addresses_(backing_->addresses()),
      limit_(backing_->limit()),
      device_(backing_->device()),
      ordinal_(backing_->ordinal()),
      home_(std::make_shared<ThreadCache::Home>()),
      unit_(backing_->granularity().count),
      heap_(unit_),
      stock_(*backing_, heap_),
      streams_(*port_),
      idle_(options.idle) {
  home_->engine = this;
  auto map = AddressMap::create(base_, addresses_);
  if (map) {
    map_ = std::move(*map);
  } else {
    broken_ = map.error();
  }
  if (options.housekeeper) {
    const auto tick = std::clamp<std::chrono::milliseconds>(
        options.idle / IdleWatch::kTicks, std::chrono::milliseconds(5), std::chrono::seconds(1));
    housekeeper_ = std::make_unique<Housekeeper>(tick, [this] { keep_house(Clock::now()); });
  }
}

Engine::~Engine() { (void)shut(false); }

bool Engine::is_usable() const {
  return generation_ == client::process_generation() && !closed_.load() && !broken_;
}

Result<void> Engine::usable() const {
  if (auto ours = client::check_not_forked(generation_); !ours) return ours;
  if (closed_.load()) return is_closed();
  if (broken_) return *broken_;
  return {};
}

Error Engine::is_closed() { return {Code::kFailedPrecondition, "the allocator has been closed"}; }

// The cache knows the stream that it was used for last.
Result<StreamIndex> Engine::stream_of(StreamHandle stream, ThreadCache* cache) {
  if (closed_.load()) return is_closed();
  if (cache != nullptr && cache->is_of(stream)) {
    cache->set_budget(cache_budget());
    return cache->stream();
  }
  auto index = streams_.index_of(stream, ThreadTable::thread_number());
  if (index && cache != nullptr) {
    cache->set_budget(cache_budget());
    cache->use(stream, *index);
  }
  return index;
}

ThreadCache* Engine::own_cache() {
  if (number_.get() == 0 || !ThreadCache::can_be_stopped()) return nullptr;
  ThreadCache* found = ThreadTable::find(number_.get());
  if (found != nullptr && found->belongs_to(home_)) return found;
  const MutexLock lock(lock_);
  std::vector<bool> taken(caches_.size() + 2);
  for (const Cached& cached : caches_) {
    if (cached.cache->number() < taken.size()) taken[cached.cache->number()] = true;
  }
  CacheNumber number = 1;
  while (taken[number]) ++number;
  auto made = std::make_shared<ThreadCache>(home_, number);
  if (closed_.load()) return nullptr;
  caches_.push_back({made});
  found = made.get();
  ThreadTable::set(number_.get(), std::move(made));
  return found;
}

// ---- Allocating ----

Result<Address, GrowError> Engine::allocate(Bytes bytes, StreamHandle stream, const Placement& placement) {
  if (!is_usable()) return GrowError(usable().error());
  if (bytes.is_zero()) return GrowError({Code::kInvalidArgument, "a block has at least one byte"});
  if (bytes > limit_) {
    return GrowError(
        {Code::kResourceExhausted,
         "a block of " + to_string(bytes) + " is larger than the allocator's limit of " + to_string(limit_)});
  }
  if (placement.tag.number != 0 && !has_tag(placement.tag)) {
    return GrowError({Code::kInvalidArgument, "there is no tag " + std::to_string(placement.tag.number)});
  }
  ThreadCache* cache = own_cache();
  const Asked asked{bytes.count, stream, placement};
  if (!placement.room.is_zero()) return allocate_roomy(asked, cache);
  if (cache != nullptr && bytes.count <= kClassMost && placement.tag.number == 0) {  // without a lock
    const std::uint32_t now = seconds_.load(std::memory_order_relaxed);
    if (const Address cached = cache->take_any(bytes.count, stream, now)) return cached;
  }
  return bytes.count <= kSlotMost ? allocate_slot(asked, cache) : allocate_piece(asked, cache);
}

Address Engine::take_cached(const Asked& asked, ThreadCache* cache) {
  if (cache == nullptr || asked.bytes > kClassMost) return 0;
  const Address cached = cache->take_locked(asked.bytes, seconds_.load(std::memory_order_relaxed));
  if (cached != 0 && asked.placement.tag.number != 0) tag_block(cached, asked.placement.tag);
  return cached;
}

Result<Address, GrowError> Engine::allocate_slot(const Asked& asked, ThreadCache* cache) {
  const ClassIndex size_class = class_of(asked.bytes);
  Need need{.kind = Need::Kind::kRun, .bytes = kRunBytes[size_class]};
  {
    const MutexLock lock(lock_);
    auto index = stream_of(asked.stream, cache);
    if (!index) return GrowError(index.error());
    need.stream = *index;
    if (const Address address = take_slot(asked, cache, *index)) return address;
  }
  auto run = satisfy(need, cache);
  if (!run) return run.error();
  const MutexLock lock(lock_);
  if (closed_.load()) return GrowError(is_closed());
  if (cache != nullptr) cache->use(asked.stream, need.stream);  // another thread may have emptied it
  shelves_.add_run(**run, size_class, need.stream);
  map_.enter(**run);
  return take_slot(asked, cache, need.stream);
}

Address Engine::take_slot(const Asked& asked, ThreadCache* cache, StreamIndex stream) {
  const ClassIndex size_class = class_of(asked.bytes);
  if (const Address cached = take_cached(asked, cache)) return cached;
  std::vector<Block> blocks;
  const std::size_t most = 1 + (cache != nullptr ? cache->wants(size_class) : 0);
  if (shelves_.take(size_class, stream, most, blocks) == 0) return 0;
  const Block block = blocks.back();
  blocks.pop_back();
  if (!blocks.empty()) cache->fill(size_class, blocks.data(), blocks.size());
  ++counters_.slow[size_class];
  mark_used(*block.slot, asked, stream, cache);
  return block.address;
}

Result<Address, GrowError> Engine::allocate_piece(const Asked& asked, ThreadCache* cache) {
  const bool classed = asked.bytes <= kClassMost;
  Need need{.bytes = classed ? kClassBytes[class_of(asked.bytes)] : rounded_up(asked.bytes, kQuantum)};
  {
    const MutexLock lock(lock_);
    auto index = stream_of(asked.stream, cache);
    if (!index) return GrowError(index.error());
    need.stream = *index;
    if (const Address cached = take_cached(asked, cache)) return cached;
    if (Piece* piece = heap_.take(need.bytes, Cut::kPiece, *index)) return hand_out(*piece, asked, *index);
  }
  auto piece = satisfy(need, cache);
  if (!piece) return piece.error();
  const MutexLock lock(lock_);
  if (closed_.load()) return GrowError(is_closed());
  return hand_out(**piece, asked, need.stream);
}

Result<Address, GrowError> Engine::allocate_roomy(const Asked& asked, ThreadCache* cache) {
  if (asked.placement.room > addresses_) {
    return GrowError({Code::kInvalidArgument, "room of " + to_string(asked.placement.room) +
                                                  " is more than the addresses there are"});
  }
  const std::uint64_t bytes = rounded_up(asked.bytes, kQuantum);
  const std::uint64_t room = rounded_up(std::max(asked.placement.room.count, bytes), unit_);
  Need need{.kind = Need::Kind::kRoom, .bytes = bytes};
  {
    const MutexLock lock(lock_);
    auto index = stream_of(asked.stream, cache);
    if (!index) return GrowError(index.error());
    need.stream = *index;
    need.at = stock_.keep_room(room);
    need.room = room;
  }
  if (need.at == 0) {
    return GrowError({Code::kResourceExhausted,
                      "no " + to_string(Bytes{room}) + " of addresses are left for the block's room"});
  }
  auto piece = satisfy(need, cache);
  const MutexLock lock(lock_);
  if (!piece) {
    stock_.give_up_room(need.at, need.at, need.at + room);
    return piece.error();
  }
  if (closed_.load()) return GrowError(is_closed());
  (*piece)->room_end = need.at + room;
  return hand_out(**piece, asked, need.stream);
}

Address Engine::hand_out(Piece& piece, const Asked& asked, StreamIndex stream) {
  const bool classed = asked.bytes <= kClassMost && piece.room_end == 0;
  piece.size_class = classed ? class_of(asked.bytes) : kNoClass;
  piece.slot_bytes = classed ? static_cast<std::uint32_t>(piece.bytes) : 0;
  piece.reciprocal = 0;
  piece.slot_count = 1;
  piece.slots = &piece.own;
  piece.asked = asked.bytes;
  ++counters_.slow[piece.size_class];
  mark_used(piece.own, asked, stream, nullptr);
  map_.enter(piece);
  return piece.base;
}

void Engine::mark_used(Slot& slot, const Asked& asked, StreamIndex stream, const ThreadCache* cache) {
  const BlockWord word =
      BlockWord::used(stream, asked.placement.tag.number, cache != nullptr ? cache->number() : 0);
  slot.set(asked.bytes <= BlockWord::kBytesMost ? word.with_bytes(asked.bytes) : word);
  slot.born.store(seconds_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

std::uint64_t Engine::cache_budget() const {
  return std::clamp(stock_.committed().count / kCachePart, kLeastCache, kMostCache);
}

bool Engine::has_tag(Tag tag) const {
  const MutexLock lock(lock_);
  return tag.number <= tags_.size();
}

void Engine::tag_block(Address address, Tag tag) {
  Slot& slot = *slot_of(*map_.find(address), address);
  const BlockWord word = slot.get();
  slot.set(BlockWord::used(word.stream(), tag.number, word.cache()).with_bytes(word.bytes()));
}

// ---- Freeing ----

Result<Engine::Found> Engine::find(Address address, Bytes bytes) const {
  Piece* piece = map_.find(address);
  Slot* slot = piece != nullptr ? slot_of(*piece, address) : nullptr;
  if (slot == nullptr) {
    if (address < base_ || address - base_ >= addresses_.count) {
      return invalid(address, "is no address of this allocator");
    }
    return invalid(address, "is not where a block in use begins: it was freed already, or is inside of one");
  }
  const BlockWord word = slot->get();
  if (word.state() != BlockWord::kUsed) return invalid(address, "was freed already");
  const bool classed = piece->size_class != kNoClass;
  const std::uint64_t asked = classed ? word.bytes() : piece->asked;
  if (bytes != Allocator::kUnknownSize && bytes.count != asked) {
    return invalid(
        address, "is a block of " + std::to_string(asked) + " bytes, not of " + std::to_string(bytes.count));
  }
  return Found{piece, slot, word};
}

Result<void> Engine::deallocate(Address address, Bytes bytes, StreamHandle stream) {
  if (!is_usable()) return usable();
  ThreadCache* cache = own_cache();
  if (Piece* piece = map_.find(address);
      piece != nullptr && cache != nullptr && piece->size_class != kNoClass) {
    Slot* slot = slot_of(*piece, address);
    if (slot != nullptr && cache->put_any(*piece, *slot, address, bytes.count, stream)) return {};
  }
  const MutexLock lock(lock_);
  if (closed_.load()) return is_closed();
  auto found = find(address, bytes);
  if (!found) return found.error();
  auto index = stream_of(stream, cache);
  if (!index) return index.error();
  Piece& piece = *found->piece;
  if (piece.size_class != kNoClass && cache != nullptr) {
    if (cache->make_room(piece.size_class, freeing()) &&
        cache->put_locked(piece, *found->slot, address, bytes.count)) {
      return {};
    }
  }
  // Another thread may free it, too, the fast way.
  std::uint64_t expected = found->word.bits();
  if (!found->slot->word.compare_exchange_strong(expected, 0)) return invalid(address, "was freed already");
  free_block(piece, {address, found->slot}, *index);
  return {};
}

void Engine::free_block(Piece& piece, const Block& block, StreamIndex stream) {
  const std::uint64_t epoch = streams_.epoch(stream);
  if (piece.use == Piece::Use::kRun) {
    if (shelves_.put(piece, block, stream, epoch)) free_piece(piece, piece.stream, piece.epoch);
  } else {
    free_piece(piece, stream, epoch);
  }
}

void Engine::free_piece(Piece& piece, StreamIndex stream, std::uint64_t epoch) {
  map_.remove(piece);
  if (piece.use == Piece::Use::kRun) shelves_.end_run(piece);
  piece.own.set(BlockWord());
  const Address base = piece.base;
  const Address end = piece.end();
  const Address room_end = std::exchange(piece.room_end, 0);
  const bool done = epoch < streams_.reached(stream);
  heap_.free(piece, done ? kNoStream : stream, epoch);
  if (room_end != 0) stock_.give_up_room(base, end, room_end);
  streams_.mark_if_own(stream, ThreadTable::thread_number());
}

ThreadCache::Emptied Engine::freeing() {
  return [this](const Block& block, StreamIndex stream) { take_back(block, stream); };
}

void Engine::take_back(const Block& block, StreamIndex stream) {
  free_block(*map_.find(block.address), block, stream);
}

}  // namespace gpumem::allocator
