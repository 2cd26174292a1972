#include "client/allocator/slab_bins.h"

#include <algorithm>

namespace gpumem::allocator {

void SlabBins::add_slab(Span& span, ClassIndex size_class, StreamIndex stream, std::uint64_t epoch) {
  span.use = Span::Use::kSlab;
  span.size_class = size_class;
  span.stream = stream;
  span.epoch = epoch;
  span.slot_bytes = kClassBytes[size_class];
  span.reciprocal = reciprocal_of(span.slot_bytes);
  const auto count = static_cast<std::uint32_t>(span.bytes / span.slot_bytes);
  auto& spare = spare_slots_[size_class];
  if (spare.empty()) {
    slots_.push_back(std::make_unique<Slot[]>(count + 1));  // one unused, for the remainder at the end
    spare.push_back(slots_.back().get());
  }
  span.slot_count = count;
  span.slots = spare.back();
  spare.pop_back();
  span.free_slots.clear();
  for (std::uint32_t i = count; i-- > 0;) span.free_slots.push_back(static_cast<std::uint16_t>(i));
  insert(span);
}

void SlabBins::end_slab(Span& slab) {
  spare_slots_[slab.size_class].push_back(slab.slots);
  slab.slots = &slab.own;
  slab.slot_count = 1;
}

std::size_t SlabBins::take(ClassIndex size_class, StreamIndex stream, std::size_t most,
                           std::vector<Block>& into) {
  Bin& own = bin(stream, size_class);
  // From the slabs first: a slab that was made for a block serves it, or its extent would never be free
  // again.
  std::size_t taken = take_from(own, most, into);
  for (; taken < most && !own.deferred.empty(); ++taken) {
    into.push_back(own.deferred.back().block);
    own.deferred.pop_back();
  }
  if (taken > 0 || stream == kNoStream) return taken;
  SlabList& unowned = bin(kNoStream, size_class).slabs;
  if (unowned.empty()) return 0;
  Span& slab = unowned.front();
  remove(slab);
  slab.stream = stream;
  slab.epoch = 0;
  insert(slab);
  return take_from(own, most, into);
}

std::size_t SlabBins::take_from(Bin& from, std::size_t most, std::vector<Block>& into) {
  std::size_t taken = 0;
  while (taken < most && !from.slabs.empty()) {
    Span& slab = from.slabs.front();
    for (; taken < most && !slab.free_slots.empty(); ++taken) {
      const std::uint16_t slot = slab.free_slots.back();
      slab.free_slots.pop_back();
      into.push_back({slab.base + std::uint64_t{slot} * slab.slot_bytes, &slab.slots[slot]});
    }
    if (slab.free_slots.empty()) remove(slab);
  }
  return taken;
}

bool SlabBins::put(Span& slab, const Block& block, StreamIndex stream, std::uint64_t epoch) {
  block.slot->set(BlockWord());
  if (stream == kNoStream) return return_slot(slab, *block.slot);
  if (slab.stream != stream && slab.free_slots.empty()) {
    slab.stream = stream;
    slab.epoch = 0;
  }
  if (slab.stream == stream) {
    slab.epoch = std::max(slab.epoch, epoch);
    return return_slot(slab, *block.slot);
  }
  bin(stream, slab.size_class).deferred.push_back({block, &slab, epoch});
  return false;
}

std::vector<Span*> SlabBins::settle(StreamIndex stream, std::uint64_t epoch) {
  std::vector<Span*> free;
  if (stream >= bins_.size()) return free;
  for (Bin& one : bins_[stream]) {
    std::erase_if(one.deferred, [&](const DeferredFree& deferred) {
      if (deferred.epoch >= epoch) return false;
      if (return_slot(*deferred.slab, *deferred.block.slot)) free.push_back(deferred.slab);
      return true;
    });
  }
  return free;
}

void SlabBins::clear_stream(Span& slab) {
  const bool in_bin = !slab.free_slots.empty();
  if (in_bin) remove(slab);
  slab.stream = kNoStream;
  if (in_bin) insert(slab);
}

bool SlabBins::return_slot(Span& slab, Slot& slot) {
  if (slab.free_slots.empty()) insert(slab);
  slab.free_slots.push_back(static_cast<std::uint16_t>(&slot - slab.slots));
  if (slab.free_slots.size() < slab.slot_count) return false;
  remove(slab);
  return true;
}

void SlabBins::insert(Span& slab) { bin(slab.stream, slab.size_class).slabs.push_front(slab); }

void SlabBins::remove(Span& slab) {
  SlabList& list = bin(slab.stream, slab.size_class).slabs;
  list.erase(list.iterator_to(slab));
}

SlabBins::Bin& SlabBins::bin(StreamIndex stream, ClassIndex size_class) {
  while (bins_.size() <= stream) bins_.emplace_back();
  return bins_[stream][size_class];
}

}  // namespace gpumem::allocator
