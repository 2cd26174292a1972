#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/structs.h"

// Statistics and snapshots. Visitors run after the engine has released its lock, so they may call anything.

namespace gpumem::c_abi {
namespace {

gpumem_statistics statistics_of(const AllocatorStatistics& known) {
  return {.struct_size = sizeof(gpumem_statistics),
          .in_use = known.in_use.count,
          .placed = known.placed.count,
          .cached = known.cached.count,
          .committed = known.committed.count,
          .returnable = known.returnable.count,
          .reserved = known.reserved.count,
          .peak_in_use = known.peak_in_use.count,
          .peak_committed = known.peak_committed.count,
          .fragmentation = known.fragmentation,
          .allocations = known.allocations,
          .cache_hits = known.cache_hits,
          .growths = known.growths,
          .refused = known.refused,
          .moved_extents = known.moved_extents,
          .given_back = known.given_back};
}

gpumem_size_class plain(const SizeClassStatistics& known) {
  return {sizeof(gpumem_size_class), known.size.count, known.in_use, known.allocations, known.cache_hits};
}

gpumem_block plain(const BlockInfo& known) {
  return {sizeof(gpumem_block), known.address,     known.bytes.count, known.placed.count,
          known.stream,         known.age.count(), known.tag.c_str()};
}

/// Calls `visitor` with each element of `list` until it returns zero.
template <class List, class Visitor>
void visit(const List& list, Visitor visitor, void* context) {
  for (const auto& item : list) {
    const auto shown = plain(item);
    if (!visitor(&shown, context)) break;
  }
}

/// Errors  kInvalidArgument: no allocator, or no visitor.
template <class Visitor>
Result<void> check(const gpumem_allocator* allocator, Visitor visitor) {
  auto given = not_null(allocator, "allocator");
  return given ? not_null(reinterpret_cast<const void*>(visitor), "visitor") : given;
}

const char* kNull = "allocator is NULL";

}  // namespace
}  // namespace gpumem::c_abi

using gpumem::c_abi::fail;
using gpumem::c_abi::guarded;

extern "C" {

gpumem_status gpumem_allocator_statistics(gpumem_allocator* allocator,
                                          gpumem_statistics* statistics) noexcept {
  return guarded([&] {
    if (auto given = gpumem::c_abi::not_null(allocator, "allocator"); !given) return fail(given.error());
    const auto known = allocator->engine.statistics();
    if (!known) return fail(known.error());
    const auto written =
        gpumem::c_abi::write_struct(gpumem::c_abi::statistics_of(*known), statistics, "gpumem_statistics");
    return written ? GPUMEM_OK : fail(written.error());
  });
}

gpumem_status gpumem_allocator_size_classes(gpumem_allocator* allocator, gpumem_size_class_visitor visitor,
                                            void* context) noexcept {
  return guarded([&] {
    if (auto given = gpumem::c_abi::check(allocator, visitor); !given) return fail(given.error());
    const auto known = allocator->engine.statistics();
    if (!known) return fail(known.error());
    gpumem::c_abi::visit(known->classes, visitor, context);
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_allocator_snapshot(gpumem_allocator* allocator, gpumem_block_visitor visitor,
                                        void* context) noexcept {
  return guarded([&] {
    if (auto given = gpumem::c_abi::check(allocator, visitor); !given) return fail(given.error());
    const auto blocks = allocator->engine.snapshot();
    if (!blocks) return fail(blocks.error());
    gpumem::c_abi::visit(*blocks, visitor, context);
    return GPUMEM_OK;
  });
}

uint64_t gpumem_allocator_limit(const gpumem_allocator* allocator) noexcept {
  if (allocator != nullptr) return allocator->limit.count;
  return fail(gpumem::Code::kInvalidArgument, gpumem::c_abi::kNull), 0;
}

uint64_t gpumem_allocator_granularity(const gpumem_allocator* allocator) noexcept {
  if (allocator != nullptr) return allocator->granularity.count;
  return fail(gpumem::Code::kInvalidArgument, gpumem::c_abi::kNull), 0;
}

const char* gpumem_allocator_device(const gpumem_allocator* allocator) noexcept {
  if (allocator != nullptr) return allocator->device.c_str();
  return fail(gpumem::Code::kInvalidArgument, gpumem::c_abi::kNull), nullptr;
}

int gpumem_allocator_ordinal(const gpumem_allocator* allocator) noexcept {
  if (allocator != nullptr) return allocator->ordinal;
  return fail(gpumem::Code::kInvalidArgument, gpumem::c_abi::kNull), -1;
}

}  // extern "C"
