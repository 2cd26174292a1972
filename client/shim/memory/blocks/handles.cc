#include "client/shim/memory/blocks/handles.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <vector>

#include "client/shim/real.h"
#include "client/slice/loose_extents.h"

namespace gpumem::shim {
namespace {

constexpr int kDuplicateQuery = 1027;  // F_DUPFD_QUERY, of Linux 6.10

}  // namespace

bool is_same_open_file(int one, int other) {
  const int told = ::fcntl(one, kDuplicateQuery, other);
  return told >= 0 ? told == 1 : share_status_flags(one, other);
}

// Flags belong to the open file. Nobody reads or writes an exported one. kcmp(2) is what containers forbid.
bool share_status_flags(int one, int other) {
  const int flags = ::fcntl(one, F_GETFL);
  if (flags < 0 || ::fcntl(other, F_GETFL) != flags) return false;
  if (::fcntl(one, F_SETFL, flags ^ O_NONBLOCK) != 0) return false;
  const bool is_same = ::fcntl(other, F_GETFL) == (flags ^ O_NONBLOCK);
  (void)::fcntl(one, F_SETFL, flags);
  return is_same;
}

// A program that names the number of the kept descriptor has closed that one.
bool ExportedFile::is_of(int fd) const {
  return is_kept() && fd != own_.get() && is_same_open_file(own_.get(), fd);
}

namespace {

constinit RealCall<decltype(::cuMemMap)> real_map("cuMemMap");
constinit RealCall<decltype(::cuMemUnmap)> real_unmap("cuMemUnmap");

using Extents = std::vector<client::LooseExtents::Extent>;

/// As cuMemMap, of all of `extents` that `size` covers.
CUresult map_extents(CUdeviceptr at, Bytes size, const Extents& extents, unsigned long long flags) {
  Bytes done;
  for (const auto& extent : extents) {
    const Bytes part = std::min(extent.memory.size(), size - done);
    if (part.is_zero()) break;
    const CUresult mapped = real_map(at + done.count, part.count, 0, extent.memory.handle(), flags);
    if (mapped != CUDA_SUCCESS) {
      if (!done.is_zero()) real_unmap(at, done.count);
      return mapped;
    }
    done += part;
  }
  return CUDA_SUCCESS;
}

/// The answer to a program that asks for `descriptor`.
CUresult given(UniqueFd descriptor, void* out) {
  if (!descriptor.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = descriptor.release();
  return CUDA_SUCCESS;
}

}  // namespace

struct Handles::Created {
  DeviceMemory* memory = nullptr;
  client::LooseExtents* lender = nullptr;  ///< of which `extents` are: of a session before, maybe
  CUmemAllocationProp asked{};
  Bytes size;
  Extents extents;
  ExportedFile exported;
  unsigned uses = 1;      ///< of the handle, by the program
  unsigned mappings = 0;  ///< of the memory
  bool is_over() const { return uses == 0 && mappings == 0; }
  Handle handle() const { return extents.front().memory.handle(); }
  void give_back() {
    exported.forget();
    lender->give_back(std::move(extents));
    memory->release(size);
  }
};

/// Guarded by mutex_.
struct Handles::State {
  struct Mapping {
    Bytes size;
    Created* of = nullptr;
  };
  std::map<Handle, std::unique_ptr<Created>> created;
  std::map<CUdeviceptr, Mapping> mappings;

  Created* find(Handle handle) const {
    const auto found = created.find(handle);
    return found != created.end() ? found->second.get() : nullptr;
  }
  std::map<CUdeviceptr, Mapping>::iterator mapping_at(CUdeviceptr address) {
    auto found = mappings.upper_bound(address);
    if (found == mappings.begin()) return mappings.end();
    --found;
    return address - found->first < found->second.size.count ? found : mappings.end();
  }
  /// Removes `one` if it is over, for its memory to be given back.
  std::unique_ptr<Created> take_if_over(const Created& one) {
    return one.is_over() ? std::move(created.extract(one.handle()).mapped()) : nullptr;
  }
  /// Keeps `descriptor`, which `one` is exported as, if there are not too many.
  void keep(Created& one, client::OwnFd descriptor) const {
    const auto kept =
        std::ranges::count_if(created, [](const auto& each) { return each.second->exported.is_kept(); });
    if (static_cast<std::size_t>(kept) < kMostKept) one.exported.keep(std::move(descriptor));
  }
  /// Whether [at, end) holds each mapping wholly or not at all.
  bool is_cut_clean(CUdeviceptr at, CUdeviceptr end) const {
    const auto cuts = [this](CUdeviceptr address) {
      const auto after = mappings.lower_bound(address);
      if (after == mappings.begin()) return false;
      const auto& [begin, mapping] = *std::prev(after);
      return begin < address && address < begin + mapping.size.count;
    };
    return !cuts(at) && !cuts(end);
  }
};

Handles::Handles() : state_(std::make_unique<State>()) {}
Handles::~Handles() = default;

CUresult Handles::create(DeviceMemory& memory, Bytes size, const CUmemAllocationProp& asked, Handle* out) {
  static constexpr const char* kCall = "cuMemCreate";
  const CUresult reserved = memory.reserve(kCall, size);
  if (reserved != CUDA_SUCCESS) return reserved;
  client::LooseExtents* lender = nullptr;
  auto extents = memory.ask_patiently(size, [&](Slices& from, const DeviceMemory::Attempt& attempt) {
    using Borrowed = Result<Extents, GrowError>;
    if (auto opened = from.open_loose(); !opened) return Borrowed(GrowError(opened.error()));
    lender = &from.loose();
    const bool waits = attempt.wait.count() != 0;
    auto borrowed = lender->borrow(size, attempt.wait, attempt.is_probe || !waits);
    if (borrowed || !borrowed.error().denial || waits) return borrowed;
    (void)from.engine().trim(size);  // what lies idle here is this process's own
    return lender->borrow(size, attempt.wait, attempt.is_probe);
  });
  if (!extents) {
    memory.release(size);
    return memory.refuse(kCall, size, extents.error());
  }
  auto created = std::make_unique<Created>();
  created->memory = &memory;
  created->lender = lender;
  created->asked = asked;
  created->asked.allocFlags.compressionType = 0;  // a wish that the driver, too, may not grant
  created->size = size;
  created->extents = std::move(*extents);
  *out = created->handle();
  const MutexLock lock(mutex_);
  state_->created[*out] = std::move(created);
  return CUDA_SUCCESS;
}

std::optional<CUresult> Handles::release(Handle handle) {
  std::unique_ptr<Created> over;
  {
    const MutexLock lock(mutex_);
    Created* const known = state_->find(handle);
    if (known == nullptr) return std::nullopt;
    if (known->uses == 0) return CUDA_ERROR_INVALID_VALUE;
    --known->uses;
    over = state_->take_if_over(*known);
  }
  if (over) over->give_back();
  return CUDA_SUCCESS;
}

std::optional<CUresult> Handles::map(CUdeviceptr at, Bytes size, Bytes offset, Handle handle,
                                     unsigned long long flags) {
  const MutexLock lock(mutex_);
  Created* const known = state_->find(handle);
  if (known == nullptr) return std::nullopt;
  if (known->uses == 0 || !offset.is_zero() || size.is_zero() || size > known->size)
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult mapped = map_extents(at, size, known->extents, flags);
  if (mapped != CUDA_SUCCESS) return mapped;
  state_->mappings[at] = {size, known};
  ++known->mappings;
  return CUDA_SUCCESS;
}

CUresult Handles::unmap(CUdeviceptr at, Bytes size) {
  std::vector<std::unique_ptr<Created>> over;
  {
    const MutexLock lock(mutex_);
    const CUdeviceptr end = at + size.count;
    if (!state_->is_cut_clean(at, end)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult unmapped = real_unmap(at, size.count);
    if (unmapped != CUDA_SUCCESS) return unmapped;
    auto& mappings = state_->mappings;
    for (auto it = mappings.lower_bound(at); it != mappings.end() && it->first < end;
         it = mappings.erase(it)) {
      Created& of = *it->second.of;
      --of.mappings;
      if (auto last = state_->take_if_over(of)) over.push_back(std::move(last));
    }
  }
  for (const auto& one : over) one->give_back();
  return CUDA_SUCCESS;
}

std::optional<CUresult> Handles::retain(CUdeviceptr address, Handle* out) {
  const MutexLock lock(mutex_);
  const auto found = state_->mapping_at(address);
  if (found == state_->mappings.end()) return std::nullopt;
  ++found->second.of->uses;
  *out = found->second.of->handle();
  return CUDA_SUCCESS;
}

std::optional<Handles::Mapped> Handles::find(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  const auto found = state_->mapping_at(address);
  if (found == state_->mappings.end()) return std::nullopt;
  const auto& [at, mapping] = *found;
  return Mapped{at, mapping.size, mapping.of->asked.requestedHandleTypes};
}

std::optional<CUresult> Handles::properties(Handle handle, CUmemAllocationProp* out) const {
  const MutexLock lock(mutex_);
  const Created* const known = state_->find(handle);
  if (known == nullptr) return std::nullopt;
  *out = known->asked;
  if (!known->memory->is_made_for_direct_access()) out->allocFlags.gpuDirectRDMACapable = 0;
  return CUDA_SUCCESS;
}

std::optional<CUresult> Handles::export_to(void* out, Handle handle, CUmemAllocationHandleType type,
                                           unsigned long long flags) {
  client::LooseExtents* lender = nullptr;
  std::uint64_t lease = 0;
  Bytes size;
  {
    const MutexLock lock(mutex_);
    const Created* const known = state_->find(handle);
    if (known == nullptr) return std::nullopt;
    const bool is_file = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0;
    if (!is_file || type != known->asked.requestedHandleTypes) return CUDA_ERROR_INVALID_VALUE;
    if (known->extents.size() > 1) {
      messages_.tell("memory of " + to_string(known->size) + " lies in " +
                     std::to_string(known->extents.size()) +
                     " extents of the broker and cannot be exported as one");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (known->exported.is_kept()) return given(known->exported.another(), out);
    lender = known->lender;
    lease = known->extents.front().lease;
    size = known->size;
  }
  auto descriptor = lender->descriptor_of(lease, size);
  if (!descriptor) {
    messages_.tell("memory of " + to_string(size) + " cannot be exported: " + descriptor.error().message);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const CUresult exported = given(duplicate_of(descriptor->get()), out);
  const MutexLock lock(mutex_);
  Created* const still = state_->find(handle);
  if (still != nullptr && still->lender == lender && still->extents.front().lease == lease &&
      !still->exported.is_kept())
    state_->keep(*still, std::move(*descriptor));
  return exported;
}

std::optional<CUresult> Handles::import(int fd, Handle* out) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(state_->created,
                                          [fd](const auto& each) { return each.second->exported.is_of(fd); });
  if (found == state_->created.end()) return std::nullopt;
  ++found->second->uses;
  *out = found->first;
  return CUDA_SUCCESS;
}

}  // namespace gpumem::shim
