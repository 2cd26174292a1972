#include "daemon/host/state/pending_inventories.h"

namespace gpumem::host {
namespace {

Error broken(const char* what) { return {Code::kInvalidArgument, std::string("a broken claim: ") + what}; }

template <class IdType>
bool append(std::vector<IdType>& ids, std::uint64_t id) {
  if (id == 0 || (!ids.empty() && ids.back().value >= id)) return false;
  ids.push_back(IdType{id});
  return true;
}

}  // namespace

Result<std::optional<core::Inventory>> PendingInventories::add(const void* lane, const lane::Resume& part,
                                                               std::size_t most) {
  auto entry = pending_.extract(lane);
  Pending pending =
      entry.empty() ? Pending{part.session, part.count + part.missing, {}} : std::move(entry.mapped());
  if (part.session != pending.session || part.count + part.missing != pending.missing || part.count > most ||
      part.missing > most - part.count)
    return broken("its frames do not fit together, or it is larger than what the session had");
  if (part.count == 0 && part.missing != 0) return broken("a frame without anything");
  if (auto added = add(pending.inventory, part); !added) return added.error();
  pending.missing = part.missing;
  if (part.missing == 0) return std::optional(std::move(pending.inventory));
  pending_.emplace(lane, std::move(pending));
  return std::optional<core::Inventory>();
}

Result<void> PendingInventories::add(core::Inventory& inventory, const lane::Resume& part) {
  for (std::uint64_t i = 0; i < part.count; ++i) {
    const lane::ClaimedThing& thing = part.things[i];
    bool in_order = false;
    switch (thing.kind) {
      case lane::Claimed::kSlice: in_order = append(inventory.slices, thing.id); break;
      case lane::Claimed::kLease: in_order = append(inventory.leases, thing.id); break;
      case lane::Claimed::kImport: in_order = append(inventory.imports, thing.id); break;
    }
    if (!in_order) return broken("it is not in order, or of an unknown kind");
  }
  return {};
}

}  // namespace gpumem::host
