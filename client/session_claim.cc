#include "client/session_claim.h"

#include <algorithm>

namespace gpumem::client {

void SessionClaim::note_sent(std::string_view packet) {
  const auto frame = lane::parse(packet);
  if (!frame) return;
  switch (frame->header.kind) {
    case lane::Kind::kReturn:
      if (const auto body = lane::body_of<lane::Return>(*frame))
        for (std::uint64_t i = 0; i < body->count; ++i) leases_.erase(body->leases[i]);
      return;
    case lane::Kind::kCloseSlice:
      if (const auto body = lane::body_of<lane::CloseSlice>(*frame)) slices_.erase(body->slice);
      return;
    case lane::Kind::kReleaseImport:
      if (const auto body = lane::body_of<lane::ReleaseImport>(*frame)) imports_.erase(body->import);
      return;
    default: return;
  }
}

void SessionClaim::note_received(const lane::Incoming& frame) {
  switch (frame.header.kind) {
    case lane::Kind::kGranted:
      if (const auto body = lane::body_of<lane::Granted>(frame))
        for (std::uint64_t i = 0; i < body->count; ++i) leases_.insert(body->leases[i].lease);
      return;
    case lane::Kind::kSliceOpened:
      if (const auto body = lane::body_of<lane::SliceOpened>(frame)) slices_.insert(body->slice);
      return;
    case lane::Kind::kImported:
      if (const auto body = lane::body_of<lane::Imported>(frame)) imports_.insert(body->import);
      return;
    case lane::Kind::kRegionMapped:
      if (const auto body = lane::body_of<lane::RegionMapped>(frame)) imports_.insert(body->import);
      return;
    default: return;
  }
}

std::vector<lane::Resume> SessionClaim::frames(std::uint64_t session) const {
  std::vector<lane::ClaimedThing> things;
  for (const std::uint64_t id : slices_) things.push_back({lane::Claimed::kSlice, id});
  for (const std::uint64_t id : leases_) things.push_back({lane::Claimed::kLease, id});
  for (const std::uint64_t id : imports_) things.push_back({lane::Claimed::kImport, id});
  std::vector<lane::Resume> frames;
  for (std::size_t next = 0; next < things.size() || frames.empty();) {
    lane::Resume frame{};
    frame.oldest = lane::kVersion;
    frame.newest = lane::kVersion;
    frame.session = session;
    frame.count = std::min(things.size() - next, lane::kMostClaimed);
    std::copy_n(things.begin() + static_cast<std::ptrdiff_t>(next), frame.count, frame.things.begin());
    next += frame.count;
    frame.missing = things.size() - next;
    frames.push_back(frame);
  }
  return frames;
}

}  // namespace gpumem::client
