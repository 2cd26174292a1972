#include "tests/promises/workload.h"

#include "tests/unit/core/policies.h"

namespace gpumem::core::promises {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kMostProcesses = 12;

}  // namespace

Workload::Workload(World& world, std::uint32_t users, Habits habits, std::mt19937_64& random)
    : world_(world), habits_(habits), random_(random) {
  for (std::uint32_t uid = 1; uid <= users; ++uid) (uid % 2 == 1 ? honest_ : hostile_).push_back(uid);
}

void Workload::step() {
  if (one_in(3)) return pass_time();
  Process* process = some_process();
  if (process == nullptr || (one_in(10) && world_.processes().size() < kMostProcesses)) return arrive();
  if (!process->traits.honest() && one_in(3)) return misbehave(*process);
  act(*process);
}

Process* Workload::some_process() {
  if (world_.processes().empty()) return nullptr;
  auto found = world_.processes().begin();
  std::advance(found, below(world_.processes().size()));
  return found->second.get();
}

void Workload::pass_time() {
  if (one_in(40)) return world_.pass(milliseconds(below(4000)));
  world_.pass_to_next(milliseconds(1 + below(200)));
}

void Workload::arrive() {
  const bool hostile = one_in(2);
  const auto& uids = hostile ? hostile_ : honest_;
  Process& process = world_.spawn(uids[below(uids.size())], hostile ? some_traits() : Traits{});
  if (!process.traits.takes_past || !one_in(3)) connect(process);
}

// Where there are jobs, mostly to one of its user's.
void Workload::connect(Process& process) {
  std::vector<CommandJobId> own;
  for (const auto& [job, facts] : world_.jobs_begun())
    if (facts.uid == process.uid) own.push_back(job);
  const bool joins = !own.empty() && !one_in(4);
  world_.connect(process, joins ? own[below(own.size())] : CommandJobId{});
}

Traits Workload::some_traits() {
  Traits traits;
  const auto sometimes = [&](bool& trait) { trait = one_in(5); };
  for (bool* trait : {&traits.ignores_pressure, &traits.keeps_returned, &traits.leaves_lane, &traits.declares,
                      &traits.takes_past, &traits.suspends, &traits.ignores_sigterm, &traits.churns,
                      &traits.says_spent, &traits.asks_hugely})
    sometimes(*trait);
  traits.cannot_be_ended = one_in(8);
  return traits;
}

void Workload::act(Process& process) {
  if (!process.session) {
    if (process.mapped.empty() || one_in(10)) connect(process);
    return;
  }
  if (process.suspended) return;
  switch (below(20)) {
    case 0: return world_.give_back(process, some_device(), some_of(gibibytes(1)));
    case 1:
    case 2: return world_.give_back(process, some_device(), some_of(mebibytes(32)));
    case 3: return world_.close_slice(process, some_device());
    case 4:
      if (one_in(4)) world_.close_lane(process, SessionEnd::kReleased, true);
      return;
    case 5:
      if (one_in(4)) world_.exit(process);
      return;
    case 6:
      if (!world_.open_requests().empty() && one_in(4)) {
        auto found = world_.open_requests().begin();
        std::advance(found, below(world_.open_requests().size()));
        world_.cancel(found->first);
      }
      return;
    case 7: return one_in(4) ? grow_hugely(process) : grow(process);
    case 8:
    case 9: return habits_.shares ? share(process) : grow(process);
    case 10:
    case 11: return habits_.jobs ? reserve(process) : grow(process);
    case 12: return habits_.contexts ? begin_context(process) : grow(process);
    case 13: return habits_.host ? pin(process) : grow(process);
    default: return grow(process);
  }
}

// Half of the requests are within what the guarantee, or a reservation, has yet to give.
void Workload::grow(Process& process) {
  const DeviceIndex device = some_device();
  if (!world_.slice(process, device)) return;
  const auto accounts = world_.broker.accounts();
  const Account& account = accounts.at({world_.broker.tenant_name(process.session), device});
  const Bytes unmet =
      std::max(account.quota.guarantee.minus(account.used()), world_.reserved(process, device))
          .rounded_down(kPiece);
  Bytes least{kPiece.count * (1 + below(24))};
  if (one_in(2) && !unmet.is_zero())
    least = one_in(2) ? unmet : Bytes{kPiece.count * (1 + below(unmet.count / kPiece.count))};
  const Bytes wanted = one_in(4) ? least + some_of(mebibytes(32)) : least;
  const Duration wait = one_in(4) ? Duration(milliseconds(below(3000))) : Duration(minutes(10));
  world_.grow(process, {{device, least, wanted}}, wait);
}

void Workload::grow_hugely(Process& process) {
  std::vector<World::Part> parts;
  for (DeviceIndex device = 0; device < world_.broker.device_count(); ++device) {
    const Bytes pool = world_.broker.device(device).pool;
    const Bytes bytes = process.traits.asks_hugely ? some_of(pool) : some_of({pool.count / 4});
    const Bytes least = bytes.rounded_down(kPiece) + kPiece;
    parts.push_back({device, least, least});
  }
  world_.grow(process, parts, one_in(2) ? Duration(seconds(1)) : Duration(minutes(10)));
}

// For its job; it begins one first, unless it is in one.
void Workload::reserve(Process& process) {
  if (process.joined) return grow(process);
  const DeviceIndex device = some_device();
  const Bytes pool = world_.broker.device(device).pool;
  if (!process.begun) {
    world_.begin_job(process, one_in(2) ? Bytes{} : some_of(pool) + kPiece);
    return;
  }
  const Bytes bytes = some_of({pool.count / 3}).rounded_down(kPiece) + kPiece;
  world_.reserve(process, device, bytes,
                 one_in(4) ? Duration(milliseconds(below(3000))) : Duration(minutes(10)));
}

// Each has one of a device, as honest programs do.
void Workload::begin_context(Process& process) {
  const DeviceIndex device = some_device();
  const Process::Contexts& own = process.contexts[device];
  if (!own.bytes.is_zero() || own.announced != 0) return grow(process);
  world_.announce_context(process, device, one_in(2) ? Duration{} : Duration(seconds(30)));
}

// More or less than before.
void Workload::pin(Process& process) {
  const Bytes pool = world_.broker.device(*world_.driver.host).pool;
  const Bytes bytes = one_in(3) ? some_of(process.pinned) : process.pinned + some_of({pool.count / 4});
  world_.pin(process, bytes, one_in(4));
}

// Announces any number, makes some without, and tells anything about them.
void Workload::lie_about_contexts(Process& process) {
  using Outcome = ContextDone::Outcome;
  if (!process.session) return connect(process);
  const DeviceIndex device = some_device();
  if (one_in(2)) {
    world_.announce_context(process, device, one_in(2) ? Duration{} : Duration(minutes(10)));
    return;
  }
  constexpr Outcome kAny[] = {Outcome::kMade, Outcome::kFailed, Outcome::kOutOfMemory};
  world_.make_context(process, device, kAny[below(std::size(kAny))]);
}

// Mostly maps what some process has published, be it of another tenant.
void Workload::share(Process& process) {
  const auto some = [this](const auto& all) {
    auto found = all.begin();
    std::advance(found, below(all.size()));
    return found->first;
  };
  const auto& regions = world_.regions();
  switch (below(8)) {
    case 0:
    case 1: world_.publish(process, some_device(), some_of(mebibytes(64)), one_in(2)); return;
    case 2: world_.unmap_one_region(process, some_device()); return;
    case 3:
      if (!regions.empty() && one_in(4)) world_.remove_region(some(regions));
      return;
    default:
      if (!regions.empty()) world_.map_region(process, some(regions));
  }
}

void Workload::misbehave(Process& process) {
  const Traits& traits = process.traits;
  if (process.suspended) {
    if (one_in(20)) world_.resume(process);
    return;
  }
  if (traits.suspends && one_in(8)) return world_.suspend(process);
  if (traits.leaves_lane && one_in(8))
    return world_.close_lane(process, one_in(2) ? SessionEnd::kLost : SessionEnd::kReleased, false);
  if (traits.declares && one_in(4)) {
    const DeviceIndex device = some_device();
    return world_.declare(process, device, some_of(world_.broker.device(device).total));
  }
  if (habits_.contexts && one_in(4)) return lie_about_contexts(process);
  if (traits.takes_past && one_in(2)) return take_past(process);
  if (traits.churns && one_in(2)) return churn(process);
  if (traits.says_spent && one_in(4)) return world_.say_spent(process, some_device());
  if (traits.asks_hugely && one_in(2) && process.session) return grow_hugely(process);
  act(process);
}

void Workload::take_past(Process& process) {
  const DeviceIndex device = some_device();
  switch (below(6)) {
    case 0: return world_.give_up_past(process, device);
    case 1: return world_.steal(process, device, some_of(mebibytes(16)));
    case 2: return world_.declare(process, device, process.past[device]);
    case 3: return world_.look(device, false);
    default: return world_.take_past(process, device, some_of(mebibytes(32)));
  }
}

void Workload::churn(Process& process) {
  if (one_in(3)) return world_.close_lane(process, SessionEnd::kReleased, true);
  if (!process.session) return connect(process);
  const DeviceIndex device = some_device();
  world_.give_back(process, device, some_of(mebibytes(16)));
  world_.close_slice(process, device);
  static_cast<void>(world_.slice(process, device));
}

}  // namespace gpumem::core::promises
