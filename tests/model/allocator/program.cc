#include "tests/model/allocator/program.h"

#include <algorithm>

#include "tests/support/allocator/broken_rule.h"

namespace gpumem::test {
namespace {

constexpr unsigned kShared = 6, kOwn = 4;

std::string words(const Error& error) { return to_string(error); }

void expect_code(const Error& error, std::initializer_list<Code> codes, const char* what) {
  if (std::ranges::find(codes, error.code) == codes.end())
    broken_rule(std::string(what) + ": " + words(error));
}

}  // namespace

Program::Program(World& world, std::uint64_t seed, unsigned thread)
    : world_(world), engine_(world.engine()), streams_(world.streams()), random_(seed), thread_(thread) {
  for (int i = 0; i < 6; ++i) favourites_.push_back(some_size());
}

Program::~Program() {
  for (Block& block : blocks_) world_.leave(std::move(block));
}

/// Shared ones: null, 1 (which is the same), 2 (each thread's own) and some; and this thread's.
StreamHandle Program::some_stream() {
  const auto number = random_() % (kShared + kOwn);
  if (number >= kShared || (world_.shape().own_streams && chance(95))) return own_stream();
  return reinterpret_cast<StreamHandle>(number < 3 ? number : number * 0x1000);
}

StreamHandle Program::own_stream() {
  return reinterpret_cast<StreamHandle>(0x10'0000 * (thread_ + 1) + random_() % kOwn * 0x100);
}

void Program::had_fast(Block block) {
  ++world_.seen.fast;
  if (reinterpret_cast<std::uintptr_t>(block.stream) > 2) ++world_.seen.fast_on_own;
  had(std::move(block));
}

Bytes Program::some_size() {
  const auto up_to = [this](std::uint64_t most) { return random_() % most + 1; };
  const std::uint64_t most = world_.shape().largest.count;
  const auto kind = random_() % 100;
  if (kind < 30 && !favourites_.empty()) return favourites_[random_() % favourites_.size()];
  std::uint64_t size = 0;
  if (kind < 60) {
    size = up_to(4096);
  } else if (kind < 75) {
    size = up_to(64 << 10);
  } else if (kind < 88) {
    size = up_to(1 << 20);
  } else if (kind < 91) {
    size = up_to(64) << 20;  // whole extents
  } else if (kind < 98) {
    size = up_to(most / 16);
  } else {
    size = up_to(most);
  }
  return {std::min(size, most)};
}

FakeStreams::Moment Program::use(StreamHandle stream) {
  return world_.shape().shadowed ? streams_.give(stream) : FakeStreams::Moment{};
}

FakeStreams::Moment Program::now(StreamHandle stream) {
  return world_.shape().shadowed ? streams_.now(stream) : FakeStreams::Moment{};
}

void Program::put_behind(StreamHandle stream, FakeStreams::Moment moment) {
  if (now(stream).stream != moment.stream) streams_.put_behind(stream, moment);
}

void Program::had(Block block) {
  ++world_.seen.blocks;
  if (block.at % 256 != 0) broken_rule("a block at " + std::to_string(block.at));
  if (auto* shadow = world_.shadow()) {
    shadow->take(block.id, block.at, block.bytes, block.stream);
    if (!block.room.is_zero()) shadow->keep_room(block.at, std::max(block.room, block.bytes));
  }
  block.used = use(block.stream);
  if (world_.shape().painted) paint(block);
  blocks_.push_back(std::move(block));
}

void Program::allocate() {
  Block block{.id = world_.next_id(), .bytes = some_size(), .stream = some_stream()};
  if (chance(50)) {
    block.at = engine_.try_allocate(block.bytes, block.stream);
    if (block.at != 0) return had_fast(std::move(block));
  }
  Placement placement;
  if (chance(4)) placement.room = block.room = {random_() % (4 * block.bytes.count + 1)};
  if (chance(20)) {
    static constexpr const char* kTags[] = {"weights", "activations", "cache"};
    placement.tag = world_.tag(block.tag = kTags[random_() % 3]);
  }
  const auto got = engine_.allocate(block.bytes, block.stream, placement);
  if (!got && !block.room.is_zero()) {  // extents that do not fit the room are of no use to it
    return expect_code(got.error(), {Code::kResourceExhausted}, "no room");
  }
  if (!got) return check_refusal(block.bytes, got.error());
  block.at = *got;
  had(std::move(block));
}

/// Only what cannot be had may be refused: whole extents that are free can be moved to where they are needed.
void Program::check_refusal(Bytes bytes, const GrowError& error) {
  ++world_.seen.refusals;
  expect_code(error, {Code::kResourceExhausted}, "an allocation failed");
  if (!error.denial) broken_rule("refused without a denial: " + words(error));
  if (is_alone() && !shortage_ && world_.shadow() != nullptr) {
    const Bytes there = world_.shadow()->in_free_extents() +
                        world_.backing().properties().limit.minus(world_.backing().committed());
    if (there >= *bytes.rounded_up(world_.backing().properties().granularity)) {
      broken_rule(to_string(bytes) + " refused, though " + to_string(there) + " are free: " + words(error));
    }
  }
  for (int i = 0; i < 8 && !blocks_.empty(); ++i) free_some();
  for (int i = 0; i < 8; ++i) free_left();  // or what threads have left would take all memory in the end
}

void Program::free_left() {
  auto found = world_.find();
  if (!found) return;
  found->stream = some_stream();  // its own may be another thread's, who may be done with it
  ++world_.seen.foreign_frees;
  free(std::move(*found));
}

/// Frees on the stream that the block is of, or on another one that comes after its work.
void Program::free(Block block) {
  const StreamHandle on = chance(70) ? block.stream : some_stream();
  put_behind(on, block.used);
  if (chance(30)) use(on);
  const FakeStreams::Moment recorded = chance(10) ? use_recorded(block) : FakeStreams::Moment{};
  if (world_.shape().painted && !is_painted(block)) {
    broken_rule("block " + std::to_string(block.id) + " at " + std::to_string(block.at) +
                " was written over");
  }
  if (auto* shadow = world_.shadow()) {
    shadow->free(block.id, block.at, block.bytes, now(on), recorded);
    shadow->give_up_room(block.at);
  }
  past_.push_back(block.at);
  if (past_.size() > 64) past_.erase(past_.begin(), past_.begin() + 32);
  if (chance(50) && engine_.try_deallocate(block.at, block.bytes, on)) return;
  const auto freed = engine_.deallocate(block.at, chance(15) ? allocator::kUnknownSize : block.bytes, on);
  if (!freed) broken_rule("not freed: " + words(freed.error()));
}

/// Another stream uses the block, which is recorded for it and not ordered before the free.
FakeStreams::Moment Program::use_recorded(const Block& block) {
  const StreamHandle stream = some_stream();
  if (auto recorded = engine_.record_stream(block.at, stream); !recorded)
    broken_rule("not recorded: " + words(recorded.error()));
  return use(stream);
}

void Program::free_some() {
  const std::size_t which = chance(40) ? blocks_.size() - 1 : some_block();
  std::swap(blocks_[which], blocks_.back());
  Block block = std::move(blocks_.back());
  blocks_.pop_back();
  if (!is_alone() && chance(10)) {
    world_.leave(std::move(block));
    free_left();
    return;
  }
  free(std::move(block));
}

/// What a program does most: one size, one stream, again and again.
void Program::repeat() {
  const StreamHandle stream = some_stream();
  const Bytes bytes{std::min<std::uint64_t>(favourites_[random_() % favourites_.size()].count, 1 << 20)};
  for (auto left = random_() % 16; left > 0; --left) {
    Block block{.id = world_.next_id(), .bytes = bytes, .stream = stream};
    block.at = engine_.try_allocate(bytes, stream);
    if (block.at != 0) {
      had_fast(std::move(block));
    } else if (const auto got = engine_.allocate(bytes, stream)) {
      block.at = *got;
      had(std::move(block));
    } else {
      return check_refusal(bytes, got.error());
    }
    block = std::move(blocks_.back());
    blocks_.pop_back();
    free(std::move(block));
  }
}

void Program::extend() {
  Block& block = blocks_[some_block()];
  const Bytes to =
      chance(50) && !block.room.is_zero()
          ? Bytes{random_() % block.room.count + 1}
          : Bytes{std::min(random_() % (2 * block.bytes.count) + 1, world_.shape().largest.count)};
  const StreamHandle on = block.stream;
  put_behind(on, block.used);
  const bool paints = world_.shape().painted;
  if (paints && !is_painted(block)) broken_rule("a block to extend was written over");
  auto* shadow = world_.shadow();
  if (shadow != nullptr && to < block.bytes) {
    shadow->free(block.id, block.at + to.count, block.bytes - to, now(on));
  }
  const auto extended = engine_.extend(block.at, block.bytes, to, on);
  if (!extended) {
    expect_code(extended.error(), {Code::kAborted, Code::kResourceExhausted}, "not extended");
    if (to <= block.bytes) broken_rule("not made shorter: " + words(extended.error()));
    if (to <= block.room && extended.error().code == Code::kAborted) {
      broken_rule("no addresses within the room: " + words(extended.error()));
    }
    if (extended.error().code == Code::kAborted) ++world_.seen.no_room;
    return;
  }
  ++world_.seen.extended;
  if (to < block.bytes) block.room = {};  // given up with the end
  if (to < block.bytes && shadow != nullptr) shadow->give_up_room(block.at);
  if (shadow != nullptr && to > block.bytes) {
    shadow->take(block.id, block.at + block.bytes.count, to - block.bytes, on);
  }
  if (paints && to >= block.bytes && !is_painted(block)) broken_rule("extended, and lost");
  block.bytes = to;
  block.used = use(on);
  if (paints) paint(block);
}

/// Calls that must be refused and change nothing.
void Program::misuse() {
  ++world_.seen.bad;
  const auto refused = [&](allocator::Address at, Bytes bytes, const char* what) {
    const StreamHandle on = some_stream();
    if (engine_.try_deallocate(at, bytes, on)) broken_rule(std::string(what) + " freed the fast way");
    const auto freed = engine_.deallocate(at, bytes, on);
    if (freed) broken_rule(std::string(what) + " freed");
    expect_code(freed.error(), {Code::kInvalidArgument}, what);
  };
  if (!blocks_.empty()) {
    const Block& block = blocks_[some_block()];
    refused(block.at, {block.bytes.count + 1 + random_() % 4096}, "a block of another size");
    if (block.bytes.count > 1) {
      refused(block.at + 1 + random_() % (block.bytes.count - 1), allocator::kUnknownSize,
              "an address in a block");
    }
  }
  refused(random_() % world_.backing().properties().base, {256}, "an address below");
  refused(world_.backing().properties().base + world_.backing().properties().addresses.count +
              random_() % (1 << 20),
          {256}, "one above");
  refused(0, {1}, "null");
  if (is_alone() && !past_.empty()) {
    const auto at = past_[random_() % past_.size()];
    const bool is_again = std::ranges::any_of(blocks_, [&](const Block& one) { return one.at == at; });
    if (!is_again) refused(at, allocator::kUnknownSize, "a block freed before");
  }
  for (const Bytes bytes : {Bytes{0}, Bytes{~0ULL}, world_.backing().properties().limit + Bytes{1}}) {
    const auto got = engine_.allocate(bytes, some_stream());
    if (got) broken_rule(to_string(bytes) + " allocated");
    expect_code(got.error(), {bytes.is_zero() ? Code::kInvalidArgument : Code::kResourceExhausted},
                "a bad size");
  }
}

void Program::work() {
  const StreamHandle stream = some_stream();
  use(stream);
  if (!blocks_.empty()) {
    Block& block = blocks_[some_block()];
    if (now(block.stream).stream == block.used.stream) block.used = use(block.stream);
  }
  if (chance(20)) put_behind(some_stream(), now(stream));
  if (chance(20) && world_.shape().shadowed) streams_.finish(some_stream());
}

/// Not every program releases the streams that it destroys.
void Program::end_stream() {
  const StreamHandle ended = own_stream();
  const auto released =
      world_.shape().announced || chance(50) ? engine_.release_stream(ended) : Result<void>();
  if (!released) broken_rule("stream not released: " + words(released.error()));
  if (world_.shape().shadowed) streams_.end(ended);
}

/// Captures begin while marks are set. If they end unseen, the memory waits for a later call that names its
/// stream, and may wait for ever, so only where refusals are not judged.
void Program::capture() {
  if (blocks_.empty()) return;
  if (is_alone() || chance(50)) {
    streams_.fail(FakeStreams::Call::kRenew, random_() % 4 + 1);
    return free_some();
  }
  streams_.set_taking(true);
  free_some();
  streams_.set_taking(false);
}

void Program::trim() {
  ++world_.seen.trims;
  const Bytes free = is_alone() && world_.shadow() != nullptr ? world_.shadow()->in_free_extents() : Bytes{};
  const Bytes wanted = chance(30) ? allocator::kUnknownSize : Bytes{random_() % world_.shape().limit.count};
  const Bytes before = world_.backing().committed();
  const auto trimmed = engine_.trim(wanted);
  if (!trimmed) broken_rule("not trimmed: " + words(trimmed.error()));
  if (!is_alone()) return;
  const Bytes given = before.minus(world_.backing().committed());
  if (*trimmed != given) broken_rule(to_string(*trimmed) + " trimmed, given back: " + to_string(given));
  if (given < std::min(free, wanted)) {
    broken_rule(to_string(given) + " trimmed of " + to_string(wanted) + ", and " + to_string(free) +
                " were free");
  }
}

void Program::background_tick() {
  later_ += std::chrono::milliseconds(random_() % 3000);
  engine_.background_tick(std::chrono::steady_clock::now() + later_);
}

void Program::compare_figures() {
  const auto snapshot = engine_.snapshot();
  const auto statistics = engine_.statistics();
  if (!snapshot || !statistics) broken_rule("no figures");
  if (statistics->committed > world_.backing().properties().limit) broken_rule("more committed than may be");
  if (!is_alone()) return;
  Bytes in_use;
  for (const Block& block : blocks_) in_use += block.bytes;
  if (statistics->in_use != in_use) {
    broken_rule(to_string(in_use) + " in use, and the statistics say " + to_string(statistics->in_use));
  }
  if (statistics->committed != world_.backing().committed()) {
    broken_rule(to_string(world_.backing().committed()) + " committed, and the statistics say " +
                to_string(statistics->committed));
  }
  if (statistics->placed < in_use || statistics->placed + statistics->cached > statistics->committed ||
      statistics->returnable > statistics->committed) {
    broken_rule("statistics do not add up");
  }
  std::ranges::sort(blocks_, {}, &Block::at);
  const auto same = [](const BlockInfo& one, const Block& other) {
    return one.address == other.at && one.bytes == other.bytes && one.placed >= one.bytes &&
           one.tag == other.tag;
  };
  if (!std::ranges::equal(*snapshot, blocks_, same)) broken_rule("the snapshot names other blocks");
  std::ranges::shuffle(blocks_, random_);
}

/// What others leave comes back before the next refusal is judged.
void Program::let_others_take() {
  shortage_ = !shortage_;
  const Bytes rest = world_.backing().properties().limit.minus(world_.backing().committed());
  world_.backing().set_available(shortage_ ? std::optional(Bytes{rest.count / 4}) : std::nullopt);
}

void Program::step() {
  const auto what = random_() % 10'000;
  if (world_.shape().own_streams && chance(4)) return chance(50) ? end_stream() : capture();
  const bool many = blocks_.size() > world_.shape().live;
  if (what < 4600) return many ? free_some() : allocate();
  if (what < 8900) return blocks_.empty() || chance(5) ? allocate() : free_some();
  if (what < 9200) return blocks_.empty() ? allocate() : extend();
  if (what < 9600) return work();
  if (what < 9900) return repeat();
  if (what < 9940) return misuse();
  if (what < 9960) return end_stream();
  if (what < 9970) return trim();
  if (what < 9990) return background_tick();
  if (what < 9997) return compare_figures();
  if (world_.shape().contended && is_alone()) return let_others_take();
}

}  // namespace gpumem::test
