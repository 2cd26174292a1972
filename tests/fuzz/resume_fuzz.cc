// Sessions that go on after a restart: whatever a broker answers to the client's claim, and whatever a client
// claims of the broker, in one frame or in many.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/packet.h"
#include "client/lane/lane_resumption.h"
#include "daemon/host/state/pending_inventories.h"
#include "tests/fuzz/fake_broker.h"
#include "tests/fuzz/packets.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

constexpr int kMostSteps = 32;

// ---- What the client reads ----

/// The session before: some of a Welcome's words are the same in answers.
client::Welcome before() {
  client::Welcome welcome;
  welcome.session = 7;
  welcome.devices = {"GPU-0"};
  return welcome;
}

/// What it has, in as many frames as that takes.
std::vector<lane::Resume> a_claim(Input& input, std::uint64_t session) {
  client::SessionHoldings claim;
  const std::size_t slices = input.below(4);
  for (std::uint64_t i = 1; i <= slices; ++i) {
    const lane::Outgoing opened(lane::SliceOpened{i, 0, 4096}, i);
    claim.note_received(*lane::parse(opened.bytes()));
  }
  lane::Granted granted{};
  for (std::size_t frames = input.below(4), next = 1; frames != 0; --frames) {
    granted.count = input.below(lane::kMostLeases + 1);
    for (std::size_t i = 0; i < granted.count; ++i) granted.leases[i] = {next++, 4096, 1};
    claim.note_received(*lane::parse(lane::Outgoing(granted, 9).bytes()));
  }
  return claim.frames(session);
}

/// Mostly the Welcome that goes on with the session.
std::string an_answer(Input& input) {
  if (input.one_in(16)) return garbage(input);
  if (input.one_in(8)) {
    lane::Failed failed{};
    failed.code = input.one_in(2) ? static_cast<std::uint64_t>(Code::kUnavailable) : input.byte();
    failed.message = text<decltype(failed.message)>(input);
    return maybe_broken(input, std::string(lane::Outgoing(failed, 1).bytes()));
  }
  lane::Welcome welcome{};
  welcome.version = input.one_in(8) ? input.word() : lane::kVersion;
  welcome.session = input.one_in(8) ? input.byte() : 7;
  welcome.count = input.one_in(8) ? input.below(lane::kMostParts + 1) : 1;
  for (std::size_t i = 0; i < welcome.count; ++i)
    welcome.devices[i] = lane::Text<48>::of(input.one_in(8) ? input.text(60) : "GPU-0");
  welcome.driver_folder = text<decltype(welcome.driver_folder)>(input);
  return maybe_broken(input, std::string(lane::Outgoing(welcome, 1).bytes()));
}

/// The frames of the claim that the client has sent follow on each other.
void read_claim(int socket) {
  std::optional<std::uint64_t> missing;
  for (;;) {
    pollfd polled{socket, POLLIN, 0};
    if (::poll(&polled, 1, 0) != 1) return;
    const auto packet = receive_packet(socket, lane::kMostBytes, 0);
    if (!packet || packet->bytes.empty()) return;
    const auto frame = lane::parse(packet->bytes);
    require(frame.has_value(), "a client sends frames");
    if (frame->header.kind == lane::Kind::kGoodbye) return;
    const auto part = lane::body_of<lane::Resume>(*frame);
    require(part.has_value() && part->session == 7, "a client that comes back says which session it is");
    require(!missing || part->count + part->missing == *missing, "a claim's frames follow on each other");
    missing = part->missing;
  }
}

void resume(Input& input) {
  static const Listener kListener;
  Pipe pipe;
  std::optional<client::LaneResumption::Resumed> resumed;
  {
    client::LaneResumption resumption(kListener.path(), before());
    const auto claim = [&](std::uint64_t session) { return a_claim(input, session); };
    UniqueFd peer;
    for (int i = 0; i < kMostSteps && !input.empty() && !resumed; ++i) {
      const auto now = client::LaneResumption::Clock::now();
      auto attempted = resumption.attempt(claim, now);
      if (!attempted) break;  // the session is lost
      resumed = std::move(*attempted);
      if (!resumption.has_reached_one()) {  // it begins anew
        peer.reset();
        continue;
      }
      if (!peer.valid()) peer = kListener.accept();
      read_claim(peer.get());
      if (input.one_in(8)) {
        peer.reset();
        continue;
      }
      const std::size_t count = input.one_in(8) ? input.below(8) : 3;
      (void)send_packet(peer.get(), an_answer(input), pipe.copies(count));
    }
    if (input.one_in(2)) resumption.leave(lane::Outgoing(lane::Goodbye{}).bytes());
  }
  if (resumed) {
    require(resumed->greeting.welcome.session == 7, "the session goes on, and no other");
    require(resumed->greeting.welcome.devices == before().devices, "with the same devices");
    require(resumed->greeting.broker_page.valid() && resumed->greeting.client_page.valid() &&
                resumed->greeting.doorbell.valid(),
            "a welcome brings three descriptors");
    resumed.reset();
  }
  require(pipe.is_let_go(), "the client closes everything it was sent");
}

// ---- What the broker reads ----

/// What a lane has claimed so far, by the plain rule.
struct Claimed {
  std::uint64_t session = 0;
  std::uint64_t missing = 0;
  std::array<std::vector<std::uint64_t>, 3> ids;  ///< slices, leases, imports
};

/// Mostly one that follows on `known`.
lane::Resume a_part(Input& input, const Claimed* known) {
  lane::Resume part{};
  part.session = input.one_in(8) ? input.byte() : (known != nullptr ? known->session : 7);
  part.count = input.below(input.one_in(4) ? lane::kMostClaimed + 1 : 5);
  const std::uint64_t all = known != nullptr ? known->missing : part.count + input.below(3) * part.count;
  part.missing = input.one_in(8) ? input.word() : all - std::min(all, part.count);
  const std::uint8_t kind = input.byte();
  std::uint64_t id = known != nullptr ? 100 * (known->ids[1].size() + 1) : 0;
  for (std::size_t i = 0; i < part.count; ++i) {
    id = input.one_in(16) ? input.word() : id + 1;
    const auto of = static_cast<lane::Claimed>(input.one_in(16) ? input.byte() : 1 + (kind + i / 4) % 3);
    part.things[i] = {of, id};
  }
  return part;
}

/// Whether `part` may be added to `claim`, which then has it.
bool add(Claimed& claim, const lane::Resume& part, std::size_t most) {
  if (part.session != claim.session || part.count > most || part.missing > most - part.count) return false;
  if (part.count + part.missing != claim.missing || (part.count == 0 && part.missing != 0)) return false;
  for (std::size_t i = 0; i < part.count; ++i) {
    const auto kind = static_cast<std::uint64_t>(part.things[i].kind);
    if (kind < 1 || kind > 3) return false;
    std::vector<std::uint64_t>& ids = claim.ids[kind - 1];
    if (part.things[i].id == 0 || (!ids.empty() && ids.back() >= part.things[i].id)) return false;
    ids.push_back(part.things[i].id);
  }
  claim.missing = part.missing;
  return true;
}

template <class Ids>
bool are(const Ids& ids, const std::vector<std::uint64_t>& expected) {
  return std::ranges::equal(ids, expected, {}, [](const auto& id) { return id.value; });
}

void claim(Input& input) {
  host::PendingInventories claims;
  const std::array<int, 2> lanes{};
  std::map<const void*, Claimed> known;
  for (int i = 0; i < kMostSteps && !input.empty(); ++i) {
    const void* const lane = &lanes[input.below(lanes.size())];
    if (input.one_in(16)) {
      claims.drop(lane);
      known.erase(lane);
    }
    const auto before = known.find(lane);
    const lane::Resume part = a_part(input, before == known.end() ? nullptr : &before->second);
    // As it comes: what is no frame does not get so far.
    const std::string packet = maybe_broken(input, std::string(lane::Outgoing(part, 1).bytes()));
    const auto frame = lane::parse(packet);
    if (!frame) continue;
    const auto body = lane::body_of<lane::Resume>(*frame);
    if (!body) continue;
    const std::size_t most = input.one_in(4) ? input.byte() : 1000;
    auto node = known.extract(lane);
    Claimed expected =
        node.empty() ? Claimed{body->session, body->count + body->missing, {}} : std::move(node.mapped());
    const bool follows = add(expected, *body, most);
    const auto added = claims.add(lane, *body, most);
    require(added.has_value() == follows, "a claim is taken whose frames follow on each other, and no other");
    if (!added) continue;
    require(added->has_value() == (expected.missing == 0), "it is whole with its last frame");
    if (expected.missing != 0) {
      known.emplace(lane, std::move(expected));
      continue;
    }
    require(are((*added)->slices, expected.ids[0]) && are((*added)->leases, expected.ids[1]) &&
                are((*added)->imports, expected.ids[2]),
            "it is what its frames say");
  }
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::Input input({reinterpret_cast<const char*>(data), size});
  if (input.one_in(2))
    gpumem::fuzz::resume(input);
  else
    gpumem::fuzz::claim(input);
  return 0;
}
