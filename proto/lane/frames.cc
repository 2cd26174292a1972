#include "proto/lane/frames.h"

#include <algorithm>

namespace gpumem::lane {
namespace {

Error broken(std::string_view what) {
  return {Code::kInvalidArgument, "a broken frame: " + std::string(what)};
}

template <std::size_t... N>
bool are_padded(const Text<N>&... texts) {
  return (texts.is_padded() && ...);
}

// The texts of each body are what their receivers may print.
template <class Body>
bool has_padded_texts(const Body&) {
  return true;
}
bool has_padded_texts(const Hello& body) { return are_padded(body.label); }
bool has_padded_texts(const OpenSlice& body) { return are_padded(body.label); }
bool has_padded_texts(const BeginJob& body) { return are_padded(body.label); }
bool has_padded_texts(const Welcome& body) {
  return are_padded(body.tenant, body.driver_folder) &&
         std::ranges::all_of(body.devices, [](const auto& device) { return device.is_padded(); });
}
bool has_padded_texts(const Described& body) {
  return std::ranges::all_of(body.slices, [](const auto& slice) { return slice.label.is_padded(); });
}
bool has_padded_texts(const Publish& body) {
  return are_padded(body.name) &&
         std::ranges::all_of(body.readers, [](const auto& reader) { return reader.is_padded(); });
}
bool has_padded_texts(const MapRegion& body) { return are_padded(body.owner, body.name); }
bool has_padded_texts(const MapOrReserve& body) { return are_padded(body.name); }
bool has_padded_texts(const RemoveRegion& body) { return are_padded(body.name); }
bool has_padded_texts(const Explained& body) { return are_padded(body.tenant); }
bool has_padded_texts(const Failed& body) {
  const Denial& denial = body.denial;
  return are_padded(body.message, denial.device, denial.tenant, denial.limiting_tenant, denial.soonest_why) &&
         std::ranges::all_of(body.holders,
                             [](const Holder& holder) { return are_padded(holder.command, holder.tenant); });
}

// The shortest and the longest that a body can be.
template <class Body>
constexpr std::size_t most_size = std::is_empty_v<Body> ? 0 : sizeof(Body);
template <class Body>
constexpr std::size_t least_size = most_size<Body>;
template <Listed Body>
constexpr std::size_t least_size<Body> = sizeof(Body) - sizeof(Body{}.*Body::kList);

}  // namespace

Failed failed_with(const Error& error) {
  Failed body{};
  body.code = static_cast<std::uint64_t>(error.code);
  body.message = decltype(body.message)::of(error.message);
  return body;
}

Result<Incoming> parse(std::string_view packet) {
  Incoming frame{};
  if (packet.size() < sizeof frame.header) return broken("it has no header");
  std::memcpy(&frame.header, packet.data(), sizeof frame.header);
  if (frame.header.magic != kMagic) return broken("it has no header");
  if (frame.header.version != kVersion && !is_of_every_version(frame.header.kind))
    return broken("it is of version " + std::to_string(frame.header.version));
  frame.body = packet.substr(sizeof frame.header);
  return frame;
}

template <class Body>
Result<Body> body_of(const Incoming& frame) {
  if (frame.header.kind != Body::kKind) return broken("it is of another kind");
  if (frame.body.size() < least_size<Body> || frame.body.size() > most_size<Body>)
    return broken("its length is not its kind's");
  Body body{};
  if constexpr (most_size < Body >> 0) std::memcpy(&body, frame.body.data(), frame.body.size());
  if constexpr (Listed<Body>) {
    if (body.count > (body.*Body::kList).size()) return broken("its list is too long");
    if (frame.body.size() != size_of(body)) return broken("its length is not its list's");
  }
  if (!has_padded_texts(body)) return broken("a text that goes on after its end");
  return body;
}

template Result<Hello> body_of(const Incoming& frame);
template Result<OpenSlice> body_of(const Incoming& frame);
template Result<CloseSlice> body_of(const Incoming& frame);
template Result<Grow> body_of(const Incoming& frame);
template Result<Return> body_of(const Incoming& frame);
template Result<Charge> body_of(const Incoming& frame);
template Result<Ping> body_of(const Incoming& frame);
template Result<Cancel> body_of(const Incoming& frame);
template Result<Accept> body_of(const Incoming& frame);
template Result<Spent> body_of(const Incoming& frame);
template Result<Goodbye> body_of(const Incoming& frame);
template Result<ExportHandle> body_of(const Incoming& frame);
template Result<ImportHandle> body_of(const Incoming& frame);
template Result<RevokeHandle> body_of(const Incoming& frame);
template Result<Publish> body_of(const Incoming& frame);
template Result<MapRegion> body_of(const Incoming& frame);
template Result<RemoveRegion> body_of(const Incoming& frame);
template Result<MapOrReserve> body_of(const Incoming& frame);
template Result<ReleaseReservation> body_of(const Incoming& frame);
template Result<NameReserved> body_of(const Incoming& frame);
template Result<Published> body_of(const Incoming& frame);
template Result<RegionMapped> body_of(const Incoming& frame);
template Result<ReleaseImport> body_of(const Incoming& frame);
template Result<Describe> body_of(const Incoming& frame);
template Result<Explain> body_of(const Incoming& frame);
template Result<Resume> body_of(const Incoming& frame);
template Result<BeginJob> body_of(const Incoming& frame);
template Result<ReserveForJob> body_of(const Incoming& frame);
template Result<AnnounceContext> body_of(const Incoming& frame);
template Result<ContextDone> body_of(const Incoming& frame);
template Result<DescribeJob> body_of(const Incoming& frame);
template Result<JobBegun> body_of(const Incoming& frame);
template Result<JobDescribed> body_of(const Incoming& frame);
template Result<HandleExported> body_of(const Incoming& frame);
template Result<Imported> body_of(const Incoming& frame);
template Result<Described> body_of(const Incoming& frame);
template Result<Explained> body_of(const Incoming& frame);
template Result<Welcome> body_of(const Incoming& frame);
template Result<SliceOpened> body_of(const Incoming& frame);
template Result<Waiting> body_of(const Incoming& frame);
template Result<Granted> body_of(const Incoming& frame);
template Result<Done> body_of(const Incoming& frame);
template Result<Failed> body_of(const Incoming& frame);

}  // namespace gpumem::lane
