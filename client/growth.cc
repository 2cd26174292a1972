#include "client/growth.h"

#include <algorithm>
#include <functional>

#include "client/slice_state.h"

namespace gpumem::client {
namespace {

using Clock = Turn::Clock;
using std::chrono::milliseconds;

/// Long enough for everyone, short enough to be added to a point in time.
constexpr milliseconds kLongestWait = std::chrono::hours(24 * 365);

/// The part in units of its slice.
Result<GrowthPart> rounded(const GrowthPart& part) {
  const Bytes unit = part.slice->granularity();
  const auto target = part.target.rounded_up(unit);
  if (!target) return Error{Code::kInvalidArgument, "more than 2^64 bytes cannot be asked for"};
  if (part.least > part.target) {
    return Error{Code::kInvalidArgument, to_string(part.least) + " at least is more than the " +
                                             to_string(part.target) + " that are wished for"};
  }
  const Bytes least = part.least.is_zero() ? *target : *part.least.rounded_up(unit);
  return GrowthPart{part.slice, *target, least};
}

bool is_denial(const GrowError& error) {
  return error.code == Code::kResourceExhausted || (error.code == Code::kDeadlineExceeded && error.denial);
}

/// One growth under way. Its parts are in the order in which slices are locked.
class Growth {
 public:
  Growth(std::vector<GrowthPart> parts, const GrowOptions& options)
      : parts_(std::move(parts)),
        connection_(parts_.front().slice->connection()),
        stop_(options.stop),
        deadline_(Clock::now() + std::clamp(options.wait, milliseconds::zero(), kLongestWait)) {
    std::ranges::sort(parts_, {}, [](const GrowthPart& part) { return part.slice->id(); });
  }

  Result<void, GrowError> run() {
    if (auto ours = take_turns(); !ours) return GrowError(ours.error());
    std::vector<GrowthPart> enough_already;
    for (const GrowthPart& part : parts_) {
      const Bytes have = part.slice->committed_and_told();
      if (have >= part.least && have < part.target) enough_already.push_back(part);
    }
    if (auto reached = reach_least(); !reached) return reached;
    for (const GrowthPart& part : enough_already) {
      if (auto wished = wish_for_more(part); !wished) return wished;
    }
    return {};
  }

 private:
  Result<void> take_turns() {
    for (const GrowthPart& part : parts_) {
      turns_.push_back(part.slice->turn().take(deadline_ + connection_.timeout(), stop_));
      if (turns_.back()) continue;
      if (stop_.stop_requested()) return called_off();
      return Error{Code::kDeadlineExceeded, "another growth of this slice is still waiting"};
    }
    return {};
  }

  Result<void, GrowError> reach_least() {
    for (;;) {  // a shrink may come in between
      std::vector<GrantTerms> terms;
      std::vector<SliceState*> slices;
      for (const GrowthPart& part : parts_) {
        const Bytes have = part.slice->committed_and_told();
        if (have >= part.least) continue;
        terms.push_back(terms_of(part, have, part.least - have));
        slices.push_back(part.slice);
      }
      if (terms.empty()) return {};
      const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
      auto asked = ask(slices, terms, std::max(left, milliseconds::zero()));
      if (!asked) return asked;
    }
  }

  Result<void, GrowError> wish_for_more(const GrowthPart& part) {
    const Bytes have = part.slice->committed_and_told();
    if (have >= part.target) return {};
    SliceState* const slices[] = {part.slice};
    const GrantTerms terms[] = {terms_of(part, have, part.slice->granularity())};
    auto asked = ask(slices, terms, milliseconds::zero());
    if (!asked && !is_denial(asked.error())) return asked;
    return {};
  }

  static GrantTerms terms_of(const GrowthPart& part, Bytes have, Bytes least) {
    return {part.slice->id(), part.target - have, least, part.slice->granularity()};
  }

  /// One request, for `terms` of `slices`.
  Result<void, GrowError> ask(std::span<SliceState* const> slices, std::span<const GrantTerms> terms,
                              milliseconds wait) {
    v1::GrowRequest request;
    for (const GrantTerms& part : terms) {
      v1::GrowPart& asked = *request.add_parts();
      asked.set_slice(part.slice);
      asked.set_bytes(part.asked.count);
      asked.set_min_bytes(part.least.count);
    }
    request.set_wait_ms(static_cast<std::uint64_t>(wait.count()));
    Lane::Growth growth(connection_.lane());
    auto granted = connection_.rpc().call(&v1::Broker::Stub::Grow, request, {wait, stop_});
    if (!granted) return granted.error();
    if (auto taken = take(slices, terms, *granted); !taken) {
      give_back(slices, *granted);
      return GrowError(taken.error().in("memory was granted but could not be mapped"));
    }
    growth.succeeded();
    return {};
  }

  /// Maps what was granted in every slice, then accepts it: all of it or nothing.
  Result<void> take(std::span<SliceState* const> slices, std::span<const GrantTerms> terms,
                    const v1::GrowResponse& granted) {
    const cuda::Driver& driver = *slices.front()->device().driver;
    auto portions = receive_grant(connection_.lane(), driver, granted, terms);
    if (!portions) return portions.error();
    const std::function<Result<void>(std::size_t)> take_from = [&](std::size_t i) -> Result<void> {
      if (i == slices.size()) return connection_.lane().accept(granted.grant());
      return slices[i]->take(std::move((*portions)[i]), [&, i] { return take_from(i + 1); });
    };
    return take_from(0);
  }

  // What an answer says of other slices is nonsense, which its first slice passes back to the broker.
  static void give_back(std::span<SliceState* const> slices, const v1::GrowResponse& granted) {
    for (SliceState* slice : slices) {
      SliceState::Leases leases;
      for (const v1::Lease& lease : granted.leases()) {
        const bool known = std::ranges::find(slices, lease.slice(), &SliceState::id) != slices.end();
        if (known ? lease.slice() == slice->id() : slice == slices.front()) leases.push_back(lease.id());
      }
      (void)slice->give_back(std::move(leases));  // kept as owed if it fails
    }
  }

  std::vector<GrowthPart> parts_;
  Connection& connection_;
  const std::stop_token stop_;
  const Clock::time_point deadline_;
  std::vector<Turn::Held> turns_;
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

}  // namespace gpumem::client
