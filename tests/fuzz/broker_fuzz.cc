// Packets of two sessions, whole frames and broken ones, to the broker's end of the lane.
#include <algorithm>
#include <array>
#include <optional>

#include "tests/fuzz/broker_host.h"
#include "tests/fuzz/packets.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

constexpr int kMostSteps = 200;
constexpr Bytes kPiece = mebibytes(2);

/// Two clients, of two tenants or of one. A client whose lane was closed is followed by another one.
class Clients {
 public:
  explicit Clients(Input& input) : input_(input), host_(some_policy(input)), of_one_tenant_(input.one_in(2)) {
    for (std::size_t i = 0; i < sessions_.size(); ++i) connect(i);
  }

  void step() {
    const std::size_t which = input_.below(2);
    const auto other = seen_of(1 - which);
    const bool packets_alone = act(which);
    if (packets_alone) require_kept(other, 1 - which);
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      if (host_.lives(sessions_[i])) continue;
      if (sessions_[i]) host_.exited(std::exchange(sessions_[i], SessionId{}));
      connect(i);
    }
  }

  void finish() {
    for (std::size_t i = 0; i < sessions_.size(); ++i)
      if (host_.lives(sessions_[i])) answer_all(sessions_[i]);
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      const bool releases = input_.one_in(2);
      if (host_.lives(sessions_[i]))
        host_.end(sessions_[i], releases ? core::SessionEnd::kReleased : core::SessionEnd::kLost);
      host_.exited(sessions_[i]);
    }
    host_.require_nothing_left();
  }

 private:
  using Kind = lane::Kind;

  struct Seen {
    std::vector<core::SliceView> slices;
    BrokerHost::Session told;
  };

  void connect(std::size_t which) {
    sessions_[which] = host_.connect(of_one_tenant_ ? 1 : static_cast<std::uint32_t>(which + 1));
  }

  /// False: more has happened than that one session's packet came.
  bool act(std::size_t which) {
    switch (input_.below(16)) {
      case 12: host_.fail_next(input_.below(8)); return false;
      case 13: pass_time(); return false;
      case 14: host_.break_lane_after(input_.below(4), some_end()); return false;
      case 15:
        if (host_.lives(sessions_[which])) host_.end(sessions_[which], some_end());
        return true;
      default: break;
    }
    if (!host_.lives(sessions_[which])) return false;
    const std::string packet = input_.one_in(16) ? garbage(input_) : maybe_broken(input_, frame(which));
    const SessionId session = sessions_[which];
    if (!host_.receive(session, packet) && host_.lives(session)) host_.end(session, some_end());
    return true;
  }

  core::SessionEnd some_end() { return static_cast<core::SessionEnd>(input_.below(3)); }

  void pass_time() {
    if (input_.one_in(2) || !host_.broker.next_deadline())
      return host_.pass(std::chrono::milliseconds(input_.byte()));
    host_.pass(host_.until_next_deadline());
  }

  // ---- Frames ----

  std::string frame(std::size_t which) {
    switch (input_.below(14)) {
      case 0:
      case 1: {
        lane::OpenSlice body{some_index(), input_.one_in(3) ? some_bytes() : 0, {}};
        body.label = text<decltype(body.label)>(input_);
        return bytes(body);
      }
      case 2: return bytes(lane::CloseSlice{some_slice(which)});
      case 3:
      case 4:
      case 5: return bytes(growth(which));
      case 6:
      case 7: return bytes(a_return(which));
      case 8: return bytes(lane::Charge{some_index(), some_bytes(), input_.word()});
      case 9: return bytes(lane::Cancel{some_number()});
      case 10: return bytes(lane::Accept{some_grant(which)});
      case 11: return sharing(which);
      case 12: return of_job();
      default: return rare();
    }
  }

  std::string sharing(std::size_t which) {
    switch (input_.below(10)) {
      case 9: {
        lane::MapRegion of_device = a_map();
        of_device.device = some_index();
        return bytes(of_device);
      }
      case 7: return bytes(lane::MapOrReserve{some_name(), some_time(), some_time()});
      case 8: return bytes(lane::ReleaseReservation{host_.last_reservation() - input_.below(3)});
      case 4: return bytes(a_region(which));
      case 5: return bytes(a_map());
      case 6: return bytes(lane::RemoveRegion{some_name(), input_.one_in(4) ? some_number() : 0});
      case 0: return bytes(an_export(which));
      case 1: return bytes(lane::ImportHandle{some_handle()});
      case 2: return bytes(lane::RevokeHandle{some_handle()});
      default: {
        const SessionId session = sessions_[input_.one_in(8) ? 1 - which : which];
        if (!host_.lives(session) || host_.told(session).imports.empty())
          return bytes(lane::ReleaseImport{input_.byte()});
        const auto& imports = host_.told(session).imports;
        return bytes(lane::ReleaseImport{imports[input_.below(imports.size())]});
      }
    }
  }

  // Of those that were made last, by either session.
  lane::HandleBytes some_handle() {
    const auto& handles = host_.handles();
    if (handles.empty()) return {};
    return handles[handles.size() - 1 - input_.below(std::min<std::size_t>(handles.size(), 8))];
  }

  lane::ExportHandle an_export(std::size_t which) {
    const lane::Return of = a_return(which);
    lane::ExportHandle body{};
    body.slice = of.slice;
    body.count = std::min<std::uint64_t>(of.count, body.leases.size());
    std::copy_n(of.leases.begin(), body.count, body.leases.begin());
    if (input_.one_in(2)) body.offset = input_.one_in(8) ? input_.word() : input_.byte();
    if (input_.one_in(2)) body.bytes = some_bytes();
    if (input_.one_in(4)) body.life = input_.one_in(2) ? input_.word() : input_.byte() * 1'000'000'000ULL;
    body.uses = input_.byte();
    return body;
  }

  lane::MapRegion a_map() {
    lane::MapRegion body{some_owner(), some_name(), input_.one_in(4) ? some_number() : 0, {}, 0};
    body.as = static_cast<lane::MapAs>(input_.below(input_.one_in(8) ? 3 : 2));
    if (input_.one_in(3)) body.wait = input_.one_in(4) ? input_.word() : input_.byte() * 1'000'000'000ULL;
    if (input_.one_in(4)) body.newer_than = some_version();
    return body;
  }

  lane::Publish a_region(std::size_t which) {
    const lane::ExportHandle of = an_export(which);
    lane::Publish body{};
    body.name = some_name();
    body.slice = of.slice;
    body.offset = of.offset;
    body.bytes = of.bytes;
    body.count = of.count;
    body.leases = of.leases;
    body.life = of.life;
    if (input_.one_in(4)) body.layout = some_bytes();
    body.keep = input_.below(input_.one_in(8) ? 3 : 2);
    if (input_.one_in(4)) body.linger = input_.one_in(4) ? input_.word() : input_.byte() * 1'000'000'000ULL;
    body.sealed = input_.below(input_.one_in(8) ? 3 : 2);
    body.sharing = static_cast<lane::Sharing>(input_.below(5));
    const bool names_readers = body.sharing == lane::Sharing::kNamed || input_.one_in(8);
    if (names_readers) body.readers[input_.below(body.readers.size())] = some_owner();
    return body;
  }

  std::uint64_t some_version() { return input_.one_in(8) ? input_.word() : 1 + input_.below(8); }

  std::uint64_t some_time() {
    if (input_.one_in(4)) return 0;
    return input_.one_in(4) ? input_.word() : input_.byte() * 1'000'000'000ULL;
  }

  // Few, so that they meet.
  lane::RegionName some_name() {
    if (input_.one_in(16)) return text<lane::RegionName>(input_);
    return lane::RegionName::of(input_.one_in(2) ? "a" : "b");
  }
  lane::Text<128> some_owner() {
    if (input_.one_in(16)) return text<lane::Text<128>>(input_);
    constexpr const char* kTenants[] = {"", "one", "two"};
    return lane::Text<128>::of(kTenants[input_.below(3)]);
  }

  std::string of_job() {
    switch (input_.below(4)) {
      case 0:
        return bytes(lane::BeginJob{some_bytes(), input_.one_in(4) ? input_.word() : 0, some_bytes(), 0, {}});
      case 1: return bytes(lane::DescribeJob{});
      default: return bytes(lane::ReserveForJob{some_time(), some_index(), some_bytes()});
    }
  }

  std::string rare() {
    switch (input_.below(7)) {
      case 0: return bytes(lane::Ping{});
      case 5: return bytes(lane::Describe{});
      case 6: return bytes(lane::Explain{});
      case 1: return bytes(lane::Spent{some_index()});
      case 2: return bytes(lane::Hello{lane::kVersion, lane::kVersion, 0, 0, {}});
      case 3: return bytes(lane::Goodbye{});
      default: {
        std::string packet = bytes(lane::Ping{});
        const auto kind = input_.word();
        std::memcpy(packet.data() + offsetof(lane::Header, kind), &kind, sizeof(Kind));
        return packet.append(input_.text(input_.byte()));
      }
    }
  }

  lane::Grow growth(std::size_t which) {
    lane::Grow body{};
    body.wait = input_.one_in(2) ? input_.byte() * 100'000'000ULL : input_.one_in(8) ? input_.word() : 0;
    const std::size_t parts = input_.one_in(4) ? input_.below(lane::kMostParts + 1) : 1;
    while (body.count < parts) {
      lane::GrowPart& part = body.parts[body.count++];
      part = {some_slice(which), some_bytes(), 0, 0};
      if (input_.one_in(4)) part.min_bytes = some_bytes();
      if (input_.one_in(4)) part.largest_extent = some_bytes();
    }
    return body;
  }

  lane::Return a_return(std::size_t which) {
    lane::Return body{};
    body.slice = some_slice(which);
    if (!host_.lives(sessions_[which])) return body;
    const auto& all = host_.told(sessions_[which]).leases;
    const auto own = all.find(body.slice);
    std::size_t skip = input_.one_in(4) ? input_.byte() : 0;
    if (own != all.end()) {
      for (const auto& [lease, size] : own->second) {
        if (skip != 0 && skip-- != 0) continue;
        if (body.count < lane::kMostReturned) body.leases[body.count++] = lease;
      }
    }
    if (input_.one_in(8)) body.leases[body.count == 0 ? body.count++ : 0] = input_.byte();
    if (input_.one_in(4)) body.count = std::min<std::uint64_t>(body.count, input_.byte());
    return body;
  }

  template <class Body>
  std::string bytes(const Body& body) {
    std::uint64_t deadline = 0;
    if (input_.one_in(8)) deadline = input_.one_in(2) ? 1 : ~std::uint64_t{0};
    return std::string(lane::Outgoing(body, some_number(), deadline).bytes());
  }

  // Mostly a new one.
  std::uint64_t some_number() { return input_.one_in(4) ? input_.byte() : ++last_number_ + 256; }
  std::uint64_t some_index() { return input_.one_in(16) ? input_.word() : input_.below(2); }
  std::uint64_t some_bytes() {
    const std::uint8_t pieces = input_.byte();
    return pieces == 255 ? input_.word() : pieces * kPiece.count;
  }
  // Mostly one of its own, else of the other, else any number.
  std::uint64_t some_slice(std::size_t which) {
    const SessionId session = sessions_[input_.one_in(16) ? 1 - which : which];
    if (!host_.lives(session) || host_.told(session).slices.empty()) return input_.byte();
    const auto& slices = host_.told(session).slices;
    return std::next(slices.begin(), static_cast<std::ptrdiff_t>(input_.below(slices.size())))->first;
  }
  std::uint64_t some_grant(std::size_t which) {
    const SessionId session = sessions_[input_.one_in(8) ? 1 - which : which];
    if (!host_.lives(session) || host_.told(session).grants.empty()) return input_.byte();
    return host_.told(session).grants.back();
  }

  // ---- What must hold ----

  std::optional<Seen> seen_of(std::size_t which) {
    if (!host_.lives(sessions_[which])) return std::nullopt;
    return Seen{view(sessions_[which]).slices, host_.told(sessions_[which])};
  }

  core::SessionView view(SessionId session) {
    for (core::SessionView& view : host_.broker.sessions())
      if (view.id == session) return view;
    require(false, "a session that lives is listed");
    return {};
  }

  // What one does takes nothing from the other; memory that comes free may go to it.
  void require_kept(const std::optional<Seen>& before, std::size_t which) {
    if (!before || !host_.lives(sessions_[which])) return;
    const Seen now = *seen_of(which);
    require(now.slices.size() == before->slices.size(), "the other session has its slices");
    for (std::size_t i = 0; i < now.slices.size(); ++i) {
      const core::SliceView &slice = now.slices[i], &earlier = before->slices[i];
      require(slice.id == earlier.id && slice.limit == earlier.limit,
              "the other session's slices are the same");
      require(slice.charged >= earlier.charged, "the other session has its memory");
      require(slice.charged == earlier.charged || !earlier.waiting.is_zero(),
              "the other session is granted what it waits for");
    }
    for (const auto& [slice, leases] : before->told.leases)
      for (const auto& [lease, size] : leases)
        require(now.told.leases.at(slice).contains(lease), "the other session has its leases");
  }

  // Whoever asked is answered in the end.
  void answer_all(SessionId session) {
    host_.fail_next(0);
    for (int i = 0; i < 1000 && host_.lives(session) && !host_.told(session).due.empty(); ++i) {
      require(host_.broker.next_deadline().has_value(), "what waits has a deadline");
      host_.pass(host_.until_next_deadline());
    }
    require(!host_.lives(session) || host_.told(session).due.empty(), "every request is answered");
  }

  Input& input_;
  BrokerHost host_;
  const bool of_one_tenant_;
  std::array<SessionId, 2> sessions_{};
  std::uint64_t last_number_ = 0;
};

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::Input input({reinterpret_cast<const char*>(data), size});
  gpumem::fuzz::Clients clients(input);
  for (int i = 0; i < gpumem::fuzz::kMostSteps && !input.empty(); ++i) clients.step();
  clients.finish();
  return 0;
}
