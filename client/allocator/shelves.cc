#include "client/allocator/shelves.h"

#include <algorithm>

namespace gpumem::allocator {

void Shelves::add_run(Piece& piece, ClassIndex size_class, StreamIndex stream) {
  piece.use = Piece::Use::kRun;
  piece.size_class = size_class;
  piece.stream = stream;
  piece.epoch = 0;
  piece.slot_bytes = kClassBytes[size_class];
  piece.reciprocal = reciprocal_of(piece.slot_bytes);
  const auto count = static_cast<std::uint32_t>(piece.bytes / piece.slot_bytes);
  auto& spare = spare_slots_[size_class];
  if (spare.empty()) {
    slots_.push_back(std::make_unique<Slot[]>(count + 1));  // one that is never used, where a rest remains
    spare.push_back(slots_.back().get());
  }
  piece.slot_count = count;
  piece.slots = spare.back();
  spare.pop_back();
  piece.free_slots.clear();
  for (std::uint32_t i = count; i-- > 0;) piece.free_slots.push_back(static_cast<std::uint16_t>(i));
  place(piece);
}

void Shelves::end_run(Piece& run) {
  spare_slots_[run.size_class].push_back(run.slots);
  run.slots = &run.own;
  run.slot_count = 1;
}

std::size_t Shelves::take(ClassIndex size_class, StreamIndex stream, std::size_t most,
                          std::vector<Block>& into) {
  Shelf& own = shelf(stream, size_class);
  std::size_t taken = 0;
  for (; taken < most && !own.loose.empty(); ++taken) {
    into.push_back(own.loose.back().block);
    own.loose.pop_back();
  }
  taken += take_from(own, most - taken, into);
  if (taken > 0 || stream == kNoStream) return taken;
  Piece* unowned = shelf(kNoStream, size_class).first;
  if (unowned == nullptr) return 0;
  withdraw(*unowned);
  unowned->stream = stream;
  unowned->epoch = 0;
  place(*unowned);
  return take_from(own, most, into);
}

std::size_t Shelves::take_from(Shelf& from, std::size_t most, std::vector<Block>& into) {
  std::size_t taken = 0;
  while (taken < most && from.first != nullptr) {
    Piece& run = *from.first;
    for (; taken < most && !run.free_slots.empty(); ++taken) {
      const std::uint16_t slot = run.free_slots.back();
      run.free_slots.pop_back();
      into.push_back({address_of(run, slot), &run.slots[slot]});
    }
    if (run.free_slots.empty()) withdraw(run);
  }
  return taken;
}

bool Shelves::put(Piece& run, const Block& block, StreamIndex stream, std::uint64_t epoch) {
  block.slot->set(BlockWord());
  if (run.stream != stream && run.free_slots.empty()) run.stream = stream;
  if (run.stream == stream) {
    run.epoch = epoch;
    return return_slot(run, *block.slot);
  }
  shelf(stream, run.size_class).loose.push_back({block, &run, epoch});
  return false;
}

std::vector<Piece*> Shelves::settle(StreamIndex stream, std::uint64_t epoch) {
  std::vector<Piece*> free;
  if (stream >= cabinets_.size()) return free;
  for (Shelf& one : cabinets_[stream]) {
    const auto done = std::partition(one.loose.begin(), one.loose.end(),
                                     [epoch](const Loose& loose) { return loose.epoch >= epoch; });
    for (auto at = done; at != one.loose.end(); ++at) {
      if (return_slot(*at->run, *at->block.slot)) free.push_back(at->run);
    }
    one.loose.erase(done, one.loose.end());
  }
  return free;
}

std::vector<StreamIndex> Shelves::waited_for() const {
  std::vector<StreamIndex> found;
  for (std::size_t i = 1; i < cabinets_.size(); ++i) {
    if (std::ranges::any_of(cabinets_[i], [](const Shelf& one) { return !one.loose.empty(); })) {
      found.push_back(static_cast<StreamIndex>(i));
    }
  }
  return found;
}

void Shelves::disown(Piece& run) {
  const bool shelved = !run.free_slots.empty();
  if (shelved) withdraw(run);
  run.stream = kNoStream;
  if (shelved) place(run);
}

bool Shelves::return_slot(Piece& run, Slot& slot) {
  if (run.free_slots.empty()) place(run);
  run.free_slots.push_back(static_cast<std::uint16_t>(&slot - run.slots));
  if (run.free_slots.size() < run.slot_count) return false;
  withdraw(run);
  return true;
}

void Shelves::place(Piece& run) {
  Shelf& own = shelf(run.stream, run.size_class);
  run.shelf_before = nullptr;
  run.shelf_after = own.first;
  if (own.first != nullptr) own.first->shelf_before = &run;
  own.first = &run;
}

void Shelves::withdraw(Piece& run) {
  Shelf& own = shelf(run.stream, run.size_class);
  (run.shelf_before != nullptr ? run.shelf_before->shelf_after : own.first) = run.shelf_after;
  if (run.shelf_after != nullptr) run.shelf_after->shelf_before = run.shelf_before;
}

Shelves::Shelf& Shelves::shelf(StreamIndex stream, ClassIndex size_class) {
  while (cabinets_.size() <= stream) cabinets_.emplace_back();
  return cabinets_[stream][size_class];
}

Address Shelves::address_of(const Piece& run, std::uint16_t slot) {
  return run.base + std::uint64_t{slot} * run.slot_bytes;
}

}  // namespace gpumem::allocator
