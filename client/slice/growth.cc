#include "client/slice/growth.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>

#include "base/crash_point.h"
#include "base/text/device_name.h"
#include "base/text/time_format.h"
#include "client/process/messages.h"
#include "client/process/signal_watch.h"
#include "client/process/status.h"
#include "client/slice/borrower.h"

namespace gpumem::client {
namespace {

Error disagreement(std::string_view what) {
  return {Code::kInternal, "the broker granted something else than was requested: " + std::string(what)};
}

using Clock = CancellableMutex::Clock;
using std::chrono::milliseconds;

/// The part, rounded up to its slice's granularity.
Result<GrowthPart> rounded(const GrowthPart& part) {
  const Bytes unit = part.slice->granularity();
  const auto bytes = part.bytes.rounded_up(unit);
  if (!bytes) return Error{Code::kInvalidArgument, "more than 2^64 bytes cannot be asked for"};
  if (part.min_bytes > part.bytes) {
    return Error{Code::kInvalidArgument, to_string(part.min_bytes) + " at least is more than the " +
                                             to_string(part.bytes) + " that are requested"};
  }
  const Bytes min_bytes = part.min_bytes.is_zero() ? *bytes : *part.min_bytes.rounded_up(unit);
  return GrowthPart{part.slice, *bytes, min_bytes};
}

bool is_denial(const GrowError& error) {
  return error.code == Code::kResourceExhausted || (error.code == Code::kDeadlineExceeded && error.denial);
}

/// Returns leases of a grant that is not accepted.
void give_back(std::span<Borrower* const> slices, std::vector<lane::GrantedLease> leases) {
  std::ranges::stable_sort(leases, {}, &lane::GrantedLease::slice);
  for (auto first = leases.begin(); first != leases.end();) {
    const std::uint64_t of = first->slice;
    Borrower::Leases ids;
    for (; first != leases.end() && first->slice == of; ++first) ids.push_back(first->lease);
    const auto slice = std::ranges::find(slices, of, &Borrower::id);
    if (slice != slices.end()) {
      (void)(*slice)->return_leases(std::move(ids));  // kept as owed if it fails
    } else {
      Borrower::return_later(slices.front()->connection(), of, ids);
    }
  }
}

/// Makes every slice take its part of the grant and then accepts the grant, all of it or nothing.
Result<void> take(std::span<Borrower* const> slices, Intake& intake) {
  auto portions = intake.take();
  if (!portions) return portions.error();
  Lane& lane = slices.front()->connection().lane();
  const std::function<Result<void>(std::size_t)> take_from = [&](std::size_t i) -> Result<void> {
    if (i == slices.size()) return lane.accept(intake.grant());
    return slices[i]->take(std::move((*portions)[i]), [&, i] { return take_from(i + 1); });
  };
  return take_from(0);
}

/// How long a growth may take.
struct Limits {
  Clock::time_point waits;           ///< for memory, until then
  Clock::time_point ends;            ///< answered by then, if the broker's wait does not take longer
  std::chrono::nanoseconds timeout;  ///< of the broker

  static Limits of(milliseconds wait, std::chrono::nanoseconds timeout) {
    const Clock::time_point waits = Clock::now() + wait;
    return {waits, waits + timeout, timeout};
  }
  /// Leaves the broker time to answer, however long other threads have held this one up.
  void leave_time() { ends = std::max(ends, Clock::now() + timeout / 2); }
  std::chrono::nanoseconds wait_left() const {
    return std::max<std::chrono::nanoseconds>(waits - Clock::now(), milliseconds::zero());
  }
};

/// The deadline of a request within `limits`.
Clock::time_point request_deadline(const Limits& limits, milliseconds timeout) {
  return std::min(limits.ends, Clock::now() + timeout);
}

/// What a request says of waiting.
struct AskTerms {
  Limits limits;
  std::chrono::nanoseconds wait{};  ///< for memory
  std::stop_token stop{};
  std::uint32_t flags = 0;  ///< as of lane::Grow
};

/// One request, for `terms` of `slices`.
Result<void, GrowError> ask(std::span<Borrower* const> slices, std::span<const GrantTerms> terms,
                            const AskTerms& how) {
  if (terms.size() > lane::kMostParts)
    return GrowError({Code::kInvalidArgument, "a growth has 32 parts at most"});
  lane::Grow request{};
  request.wait = static_cast<std::uint64_t>(how.wait.count());
  request.flags = how.flags;
  for (const GrantTerms& part : terms) {
    request.parts[request.count++] = {part.slice, part.bytes.count, part.min_bytes.count, part.largest.count};
  }
  Connection& connection = slices.front()->connection();
  Intake intake(terms);
  auto granted = connection.lane().grow(
      request, {request_deadline(how.limits, connection.timeout()), how.stop, how.limits.waits},
      [&intake](GrantPart part) { intake.add(std::move(part)); });
  if (granted) {
    auto taken = take(slices, intake);
    if (taken) crash_at(CrashPoint::kClientGrowAccepted);
    if (taken) return {};
    Error unmapped = taken.error().in("memory was granted but could not be mapped");
    // The caller gave nothing wrong.
    if (unmapped.code == Code::kInvalidArgument) unmapped.code = Code::kInternal;
    granted = GrowError(std::move(unmapped));
  }
  give_back(slices, intake.leases());
  return granted;
}

/// Of a growth that waits for memory.
using Signals = std::optional<SignalWatch>;

Result<CancellableMutex::Guard> lock_growth(Borrower& slice, const Limits& limits,
                                            const std::stop_token& stop, const Signals& signals) {
  const Clock::time_point latest = limits.ends - limits.timeout / 2;
  for (;;) {
    const Clock::time_point look = signals ? Clock::now() + SignalWatch::kLook : latest;
    CancellableMutex::Guard ours = slice.growth_mutex().lock(std::min(look, latest), stop);
    if (signals && signals->seen() != 0) return signals->error();
    if (ours) return ours;
    if (stop.stop_requested()) return called_off();
    if (Clock::now() >= latest)
      return Error{Code::kDeadlineExceeded, "another growth of this slice is still waiting"};
  }
}

/// One growth in progress. Its parts are in the locking order of slices.
class Growth {
 public:
  Growth(std::vector<GrowthPart> parts, const GrowOptions& options)
      : parts_(std::move(parts)),
        stop_(options.stop),
        limits_(Limits::of(parts_.front().slice->connection().wait_of(options.wait),
                           parts_.front().slice->connection().timeout())) {
    const milliseconds wait = parts_.front().slice->connection().wait_of(options.wait);
    if (wait.count() > 0) signals_.emplace();
    if (!options.wait) default_wait_ = wait;
    std::ranges::sort(parts_, {}, [](const GrowthPart& part) { return part.slice->id(); });
  }

  Result<void, GrowError> run() {
    const GrowthPart& first = parts_.front();
    const auto notice =
        notice_of_wait(*first.slice, first.bytes.minus(first.slice->committed()), default_wait_);
    if (auto ours = lock_all(); !ours) return GrowError(ours.error());
    std::vector<GrowthPart> enough_already;
    for (const GrowthPart& part : parts_) {
      const Bytes have = part.slice->committed_and_told(limits_.ends);
      if (have >= part.min_bytes && have < part.bytes) enough_already.push_back(part);
    }
    limits_.leave_time();
    if (auto reached = reach_least(); !reached) return reached;
    for (const GrowthPart& part : enough_already) {
      if (auto more = try_for_more(part); !more) return more;
    }
    return {};
  }

 private:
  Result<void> lock_all() {
    for (const GrowthPart& part : parts_) {
      auto ours = lock_growth(*part.slice, limits_, stop_, signals_);
      if (!ours) return ours.error();
      locked_.push_back(std::move(*ours));
    }
    return {};
  }

  Result<void, GrowError> reach_least() {
    for (;;) {  // a shrink may happen in between
      std::vector<GrantTerms> terms;
      std::vector<Borrower*> slices;
      for (const GrowthPart& part : parts_) {
        const Bytes have = part.slice->committed_and_told(limits_.ends);
        if (have >= part.min_bytes) continue;
        terms.push_back(terms_of(part, have, part.min_bytes - have));
        slices.push_back(part.slice);
      }
      if (terms.empty()) return {};
      auto asked = ask(slices, terms, {limits_, limits_.wait_left(), stop_});
      if (!asked) return asked;
    }
  }

  Result<void, GrowError> try_for_more(const GrowthPart& part) {
    const Bytes have = part.slice->committed_and_told(limits_.ends);
    if (have >= part.bytes) return {};
    Borrower* const slices[] = {part.slice};
    const GrantTerms terms[] = {terms_of(part, have, part.slice->granularity())};
    auto asked = ask(slices, terms, {limits_, milliseconds::zero(), stop_, lane::Grow::kProbe});
    if (!asked && !is_denial(asked.error())) return asked;
    return {};
  }

  static GrantTerms terms_of(const GrowthPart& part, Bytes have, Bytes min_bytes) {
    return {part.slice->id(),           part.bytes - have, min_bytes, part.slice->granularity(), {},
            part.slice->device().driver};
  }

  std::vector<GrowthPart> parts_;
  const std::stop_token stop_;
  milliseconds default_wait_{0};  ///< that the environment asks for; 0: the program says it itself
  Signals signals_;
  Limits limits_;
  std::vector<CancellableMutex::Guard> locked_;
};

}  // namespace

std::unique_ptr<WaitNotice> notice_of_wait(const Borrower& slice, Bytes bytes, milliseconds wait) {
  static Pace told;
  if (wait <= WaitNotice::kShort) return nullptr;
  return std::make_unique<WaitNotice>(told, "waiting for " + to_string(bytes) + " of " +
                                                slice.device().name() + "; at most " + span_text(wait));
}

void Intake::add(GrantPart part) {
  grant_ = part.granted.grant;
  const auto* const first = part.granted.leases.data();
  leases_.insert(leases_.end(), first, first + part.granted.count);
  if (all_) all_ = import(part);
}

Result<void> Intake::import(GrantPart& part) {
  if (part.lost_descriptors) {
    return Error{Code::kResourceExhausted,
                 "this process has no room for the descriptors of its memory; raise RLIMIT_NOFILE"};
  }
  if (part.descriptors.size() != part.granted.count) return disagreement("extents without descriptors");
  for (std::size_t i = 0; i < part.descriptors.size(); ++i) {
    auto imported = import(part.granted.leases[i], std::move(part.descriptors[i]));
    if (!imported) return imported;
  }
  return {};
}

Result<void> Intake::import(const lane::GrantedLease& lease, OwnFd descriptor) {
  const auto terms = std::ranges::find(terms_, lease.slice, &GrantTerms::slice);
  if (terms == terms_.end()) return disagreement("an extent for a slice that did not ask");
  if (lease.size == 0 || lease.size % terms->granularity.count != 0)
    return disagreement("an extent of " + std::to_string(lease.size) + " bytes");
  if (!seen_.insert(lease.lease).second) return disagreement("an extent twice");
  if (fails_at(CrashPoint::kClientGrowImport)) return errno_error(EMFILE, "cuMemImportFromShareableHandle");
  Portion& portion = portions_[static_cast<std::size_t>(terms - terms_.begin())];
  if (terms->driver == nullptr) {
    portion.extents.push_back({lease.lease, {lease.size}});
    portion.files.push_back(std::move(descriptor));
    return {};
  }
  auto imported = cuda::Allocation::import(*terms->driver, descriptor.get(), {lease.size});
  if (!imported) return imported.error();
  portion.extents.push_back({lease.lease, {lease.size}});
  portion.allocations.push_back(std::move(*imported));
  return {};
}

Result<void> Intake::check_sizes() const {
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    Bytes sum;
    for (const Portion::Extent& extent : portions_[i].extents) {
      const auto more = sum.plus(extent.size);
      if (!more) return disagreement("more than 2^64 bytes");
      sum = *more;
    }
    if (sum < terms_[i].min_bytes || sum > terms_[i].bytes)
      return disagreement(to_string(sum) + " instead of " + to_string(terms_[i].bytes));
  }
  return {};
}

Result<std::vector<Portion>> Intake::take() {
  if (!all_) return all_.error();
  if (auto right = check_sizes(); !right) return right.error();
  crash_at(CrashPoint::kClientGrowImported);
  return std::move(portions_);
}

Result<std::vector<Bytes>, GrowError> grow_slices(std::span<const GrowthPart> parts,
                                                  const GrowOptions& options) {
  std::vector<GrowthPart> own;
  for (const GrowthPart& part : parts) {
    auto units = rounded(part);
    if (!units) return GrowError(units.error());
    own.push_back(*units);
  }
  if (options.stop.stop_requested()) return GrowError(called_off());
  if (auto grown = Growth(std::move(own), options).run(); !grown) return grown.error();
  std::vector<Bytes> committed;
  for (const GrowthPart& part : parts) committed.push_back(part.slice->committed());
  return committed;
}

Result<void, GrowError> grow_by(Borrower& slice, const MoreMemory& more, const GrowOptions& options) {
  const std::chrono::nanoseconds timeout = slice.connection().timeout();
  const auto wait = slice.connection().wait_of(options.wait);
  Limits limits = Limits::of(wait, std::max(timeout - more.taken, std::chrono::nanoseconds(0)));
  Signals signals;
  if (wait.count() > 0) signals.emplace();
  auto ours = lock_growth(slice, limits, options.stop, signals);
  if (!ours) return GrowError(ours.error());
  // Memory that is being returned would count against the slice's limit.
  (void)slice.committed_and_told(limits.ends);
  limits.leave_time();
  Borrower* const slices[] = {&slice};
  const GrantTerms terms[] = {
      {slice.id(), more.bytes, more.min_bytes, slice.granularity(), more.largest, slice.device().driver}};
  const std::uint32_t flags = more.is_probe ? lane::Grow::kProbe : 0;
  return ask(slices, terms, {limits, limits.wait_left(), options.stop, flags});
}

}  // namespace gpumem::client
