#include "client/growth.h"

#include <algorithm>
#include <functional>

#include "client/borrower.h"

namespace gpumem::client {
namespace {

using Clock = CancellableMutex::Clock;
using std::chrono::milliseconds;

/// Longer than any real wait, and short enough to be added to a point in time.
constexpr milliseconds kLongestWait = std::chrono::hours(24 * 365);

/// The part, rounded up to its slice's granularity.
Result<GrowthPart> rounded(const GrowthPart& part) {
  const Bytes unit = part.slice->granularity();
  const auto target = part.target.rounded_up(unit);
  if (!target) return Error{Code::kInvalidArgument, "more than 2^64 bytes cannot be asked for"};
  if (part.least > part.target) {
    return Error{Code::kInvalidArgument, to_string(part.least) + " at least is more than the " +
                                             to_string(part.target) + " that are requested"};
  }
  const Bytes least = part.least.is_zero() ? *target : *part.least.rounded_up(unit);
  return GrowthPart{part.slice, *target, least};
}

bool is_denial(const GrowError& error) {
  return error.code == Code::kResourceExhausted || (error.code == Code::kDeadlineExceeded && error.denial);
}

/// Returns the leases of a grant that is not accepted. Leases of unknown slices go through the first slice.
void give_back(std::span<Borrower* const> slices, const v1::GrowResponse& granted) {
  for (Borrower* slice : slices) {
    Borrower::Leases leases;
    for (const v1::Lease& lease : granted.leases()) {
      const bool known = std::ranges::find(slices, lease.slice(), &Borrower::id) != slices.end();
      if (known ? lease.slice() == slice->id() : slice == slices.front()) leases.push_back(lease.id());
    }
    (void)slice->return_leases(std::move(leases));  // kept as owed if it fails
  }
}

/// Makes every slice take its part of the grant and then accepts the grant, all of it or nothing.
Result<void> take(std::span<Borrower* const> slices, std::span<const GrantTerms> terms,
                  const v1::GrowResponse& granted) {
  Connection& connection = slices.front()->connection();
  const cuda::Driver& driver = *slices.front()->device().driver;
  auto portions = receive_grant(connection.lane(), driver, granted, terms);
  if (!portions) return portions.error();
  const std::function<Result<void>(std::size_t)> take_from = [&](std::size_t i) -> Result<void> {
    if (i == slices.size()) return connection.lane().accept(granted.grant());
    return slices[i]->take(std::move((*portions)[i]), [&, i] { return take_from(i + 1); });
  };
  return take_from(0);
}

/// One request, for `terms` of `slices`.
Result<void, GrowError> ask(std::span<Borrower* const> slices, std::span<const GrantTerms> terms,
                            const CallTerms& call) {
  v1::GrowRequest request;
  for (const GrantTerms& part : terms) {
    v1::GrowPart& asked = *request.add_parts();
    asked.set_slice(part.slice);
    asked.set_bytes(part.asked.count);
    asked.set_min_bytes(part.least.count);
    asked.set_largest_extent(part.largest.count);
  }
  request.set_wait_ms(static_cast<std::uint64_t>(call.extra.count()));
  Connection& connection = slices.front()->connection();
  Lane::Growth growth(connection.lane());
  auto granted = connection.rpc().call(&v1::Broker::Stub::Grow, request, call);
  if (!granted) return granted.error();
  if (auto taken = take(slices, terms, *granted); !taken) {
    give_back(slices, *granted);
    return GrowError(taken.error().in("memory was granted but could not be mapped"));
  }
  growth.succeeded();
  return {};
}

Result<CancellableMutex::Guard> lock_growth(Borrower& slice, Clock::time_point deadline,
                                            const std::stop_token& stop) {
  CancellableMutex::Guard ours = slice.growth_mutex().lock(deadline + slice.connection().timeout(), stop);
  if (ours) return ours;
  if (stop.stop_requested()) return called_off();
  return Error{Code::kDeadlineExceeded, "another growth of this slice is still waiting"};
}

milliseconds time_left(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds::zero());
}

Clock::time_point deadline_of(const GrowOptions& options) {
  return Clock::now() + std::clamp(options.wait, milliseconds::zero(), kLongestWait);
}

/// One growth in progress. Its parts are in the locking order of slices.
class Growth {
 public:
  Growth(std::vector<GrowthPart> parts, const GrowOptions& options)
      : parts_(std::move(parts)), stop_(options.stop), deadline_(deadline_of(options)) {
    std::ranges::sort(parts_, {}, [](const GrowthPart& part) { return part.slice->id(); });
  }

  Result<void, GrowError> run() {
    if (auto ours = lock_all(); !ours) return GrowError(ours.error());
    std::vector<GrowthPart> enough_already;
    for (const GrowthPart& part : parts_) {
      const Bytes have = part.slice->committed_and_told();
      if (have >= part.least && have < part.target) enough_already.push_back(part);
    }
    if (auto reached = reach_least(); !reached) return reached;
    for (const GrowthPart& part : enough_already) {
      if (auto more = try_for_more(part); !more) return more;
    }
    return {};
  }

 private:
  Result<void> lock_all() {
    for (const GrowthPart& part : parts_) {
      auto ours = lock_growth(*part.slice, deadline_, stop_);
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
        const Bytes have = part.slice->committed_and_told();
        if (have >= part.least) continue;
        terms.push_back(terms_of(part, have, part.least - have));
        slices.push_back(part.slice);
      }
      if (terms.empty()) return {};
      auto asked = ask(slices, terms, {time_left(deadline_), stop_});
      if (!asked) return asked;
    }
  }

  Result<void, GrowError> try_for_more(const GrowthPart& part) {
    const Bytes have = part.slice->committed_and_told();
    if (have >= part.target) return {};
    Borrower* const slices[] = {part.slice};
    const GrantTerms terms[] = {terms_of(part, have, part.slice->granularity())};
    auto asked = ask(slices, terms, {milliseconds::zero(), stop_});
    if (!asked && !is_denial(asked.error())) return asked;
    return {};
  }

  static GrantTerms terms_of(const GrowthPart& part, Bytes have, Bytes least) {
    return {part.slice->id(), part.target - have, least, part.slice->granularity(), {}};
  }

  std::vector<GrowthPart> parts_;
  const std::stop_token stop_;
  const Clock::time_point deadline_;
  std::vector<CancellableMutex::Guard> locked_;
};

}  // namespace

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
  const Clock::time_point deadline = deadline_of(options);
  auto ours = lock_growth(slice, deadline, options.stop);
  if (!ours) return GrowError(ours.error());
  (void)slice.committed_and_told();  // or memory that is being returned would count against the slice's limit
  Borrower* const slices[] = {&slice};
  const GrantTerms terms[] = {{slice.id(), more.most, more.least, slice.granularity(), more.largest}};
  return ask(slices, terms, {time_left(deadline), options.stop});
}

}  // namespace gpumem::client
