// Packets of a broker that may send anything, with and without descriptors, to the client's end of the lane.
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "client/lane/lane.h"
#include "tests/fuzz/fake_broker.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

using client::Lane;

constexpr int kMostSteps = 24;
/// Where every request has an end: longer than a fuzzer lets one input take.
constexpr std::chrono::milliseconds kLong{600'000};
/// Of a broker that falls silent.
constexpr std::chrono::milliseconds kShort{1};

/// Makes calls. Whatever comes of them, they end.
class FuzzedClient {
 public:
  explicit FuzzedClient(std::unique_ptr<Lane> lane) : lane_(std::move(lane)) {}

  void greet() {
    const auto greeting = lane_->greet("fuzz");
    if (!greeting) return;
    require(greeting->welcome.session != 0, "a welcome names the session");
    require(greeting->broker_page.valid() && greeting->client_page.valid() && greeting->doorbell.valid(),
            "a welcome brings three descriptors");
  }

  void call(std::uint8_t what) {
    switch (what % 25) {
      case 0: (void)lane_->call<lane::SliceOpened>(lane::OpenSlice{0, 0, {}}); break;
      case 1: (void)lane_->call(lane::Return{1, 0, {}}); break;
      case 2: (void)lane_->call(lane::Ping{}); break;
      case 3: (void)lane_->accept(1); break;
      case 4: (void)lane_->spent(0); break;
      case 5: lane_->tell_later(lane::CloseSlice{1}); break;
      case 6: two_at_once(); break;
      case 7: grow(true); break;
      case 8: lane_->goodbye(); break;
      case 9: (void)lane_->call(lane::RemoveRegion{}); break;
      case 12: import_handle(); break;
      case 13: (void)lane_->call<lane::HandleExported>(lane::ExportHandle{}); break;
      case 14: lane_->tell_later(lane::RevokeHandle{}); break;
      case 15: map_region(); break;
      case 16: (void)lane_->call<lane::Published>(lane::Publish{}); break;
      case 17: map_or_reserve(); break;
      case 18: (void)lane_->call<lane::JobBegun>(lane::BeginJob{}); break;
      case 19: reserve_for_job(); break;
      default: grow(false);
    }
  }

 private:
  void grow(bool called_off) {
    lane::Grow body{};
    body.count = 1;
    body.parts[0] = {1, 1 << 20, 0, 0};
    std::stop_source stop;
    if (called_off) stop.request_stop();
    std::optional<lane::Granted> last;
    std::uint64_t leases = 0, all = 0;
    const auto take = [&](const client::GrantPart& part) {
      if (!last) all = part.granted.count + part.granted.missing;
      last = part.granted;
      leases += part.granted.count;
      require(part.descriptors.size() <= lane::kMostDescriptors, "a part brings a frame's descriptors");
    };
    const auto done = lane_->grow(body, {Lane::Clock::now() + lane_->timeout(), stop.get_token()}, take);
    if (done) require(last && last->missing == 0 && leases == all, "a grant is whole");
  }

  void import_handle() {
    const auto part = lane_->import_handle({});
    if (!part) return;
    require(part->imported.count <= part->imported.sizes.size(), "an import is as long as it says");
    require(part->descriptors.size() <= lane::kMostDescriptors, "it brings a frame's descriptors");
    lane_->tell_later(lane::ReleaseImport{part->imported.import});
  }

  void map_region() { release(lane_->map_region({}, {})); }

  void release(const Result<client::RegionPart>& region) {
    if (!region) return;
    require(region->part.imported.count <= region->part.imported.sizes.size(),
            "a region is as long as it says");
    require(region->part.descriptors.size() <= lane::kMostDescriptors, "it brings a frame's descriptors");
    lane_->tell_later(lane::ReleaseImport{region->part.imported.import});
  }

  void map_or_reserve() {
    const auto outcome =
        lane_->map_or_reserve({}, {Lane::Clock::now() + lane_->timeout(), {}, Lane::Clock::now()});
    if (!outcome) return;
    if (const auto* reserved = std::get_if<lane::NameReserved>(&*outcome))
      return lane_->tell_later(lane::ReleaseReservation{reserved->reservation});
    const auto& part = std::get<client::RegionPart>(*outcome).part;
    require(part.imported.count <= part.imported.sizes.size(), "a region is as long as it says");
    lane_->tell_later(lane::ReleaseImport{part.imported.import});
  }

  void reserve_for_job() {
    (void)lane_->reserve_for_job({}, {Lane::Clock::now() + lane_->timeout(), {}, Lane::Clock::now()});
  }

  void two_at_once() {
    std::thread other([this] { grow(false); });
    (void)lane_->call<lane::SliceOpened>(lane::OpenSlice{0, 0, {}});
    other.join();
  }

  std::unique_ptr<Lane> lane_;
};

void run(Input& input) {
  static const Listener kListener;
  const bool may_be_silent = input.one_in(16);
  ReplyMaker maker(input, may_be_silent);
  std::vector<std::uint8_t> calls;
  std::deque<Reply> replies{maker.next()};
  for (int i = 0; i < kMostSteps && !input.empty(); ++i) {
    calls.push_back(input.byte());
    replies.push_back(maker.next());
  }
  auto lane = Lane::connect(kListener.path(), may_be_silent ? kShort : kLong);
  require(lane.has_value(), "the client connects");
  FakeBroker broker(kListener.accept(), std::move(replies));
  {
    FuzzedClient client(std::move(*lane));
    client.greet();
    for (const std::uint8_t what : calls) client.call(what);
  }
  require(broker.is_let_go(), "the client closes everything it was sent");
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::Input input({reinterpret_cast<const char*>(data), size});
  gpumem::fuzz::run(input);
  return 0;
}
