#include "tests/support/allocator/fake_backing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "tests/support/allocator/broken_rule.h"

namespace gpumem::test {

using allocator::Address;
using allocator::Extent;

namespace {

std::string range(Address at, Bytes bytes) {
  return "[" + std::to_string(at) + ", +" + to_string(bytes) + ")";
}
std::string name(const Extent& extent) {
  return "extent " + std::to_string(extent.id) + " of " + to_string(extent.size);
}

void* pointer(Address at) { return reinterpret_cast<void*>(at); }

}  // namespace

FakeBacking::FakeBacking(const FakeBackingOptions& options) : options_(options), base_(Address{1} << 40) {
  if (options_.addresses.is_zero()) options_.addresses = {options_.limit.count * 16};
  if (options_.host_memory) reserve();
  properties_ = {.base = base_,
                 .addresses = options_.addresses,
                 .granularity = options_.granularity,
                 .limit = options_.limit,
                 .device = "GPU-00000000-0000-0000-0000-00000000fa4e"};
}

void FakeBacking::reserve() {
  file_ = UniqueFd(::memfd_create("extents", MFD_CLOEXEC));
  // One unit more, so that the base can be a multiple of the granularity, as a driver's is.
  const std::uint64_t unit = options_.granularity.count;
  void* room = ::mmap(nullptr, options_.addresses.count + unit, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!file_.valid() || room == MAP_FAILED) broken_rule("no host memory for a fake backing");
  base_ = (reinterpret_cast<Address>(room) + unit - 1) / unit * unit;
}

FakeBacking::~FakeBacking() {
  // The first few addresses below the base stay reserved: nobody misses them in a test.
  if (options_.host_memory) ::munmap(pointer(base_), options_.addresses.count);
}

void FakeBacking::fail(Call call, std::uint64_t nth, Error error, std::uint64_t times) {
  const std::lock_guard lock(mutex_);
  failures_[static_cast<std::size_t>(call)] = {nth, times, std::move(error)};
}

bool FakeBacking::heal() {
  const std::lock_guard lock(mutex_);
  const bool all = std::ranges::all_of(failures_, [](const Failure& one) { return one.nth == 0; });
  failures_ = {};
  return all;
}

void FakeBacking::set_available(std::optional<Bytes> bytes) {
  const std::lock_guard lock(mutex_);
  available_ = bytes;
}

void FakeBacking::on_obtain(std::function<void(const Request&)> call) {
  const std::lock_guard lock(mutex_);
  on_obtain_ = std::move(call);
}

void FakeBacking::on_grant(std::function<Bytes(Bytes, Bytes)> choose) {
  const std::lock_guard lock(mutex_);
  on_grant_ = std::move(choose);
}

void FakeBacking::observe(Observer* observer) {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
}

std::uint64_t FakeBacking::calls(Call call) const {
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<std::size_t>(call)];
}

std::uint64_t FakeBacking::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_[0] + calls_[1] + calls_[2];
}

Bytes FakeBacking::committed() const {
  const std::lock_guard lock(mutex_);
  return committed_;
}

Bytes FakeBacking::most_committed() const {
  const std::lock_guard lock(mutex_);
  return most_committed_;
}

Bytes FakeBacking::mapped() const {
  const std::lock_guard lock(mutex_);
  return mapped_bytes_;
}

std::size_t FakeBacking::extents() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

Bytes FakeBacking::largest_extent() const {
  const std::lock_guard lock(mutex_);
  Bytes largest;
  for (const auto& [id, held] : held_) largest = std::max(largest, held.size);
  return largest;
}

Bytes FakeBacking::published() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

std::vector<allocator::Backing::Request> FakeBacking::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<std::pair<Address, Extent>> FakeBacking::mapped_at(Address at, Bytes bytes) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Address, Extent>> found;
  auto next = mapped_.upper_bound(at);
  if (next != mapped_.begin()) --next;
  for (; next != mapped_.end() && next->first < at + bytes.count; ++next) {
    const Extent extent{next->second, held_.at(next->second).size};
    if (next->first + extent.size.count > at) found.emplace_back(next->first, extent);
  }
  return found;
}

std::optional<Error> FakeBacking::counted(Call call) {
  const auto index = static_cast<std::size_t>(call);
  ++calls_[index];
  Failure& failure = failures_[index];
  if (failure.nth == 0 || --failure.nth > 0) return std::nullopt;
  if (--failure.times > 0) failure.nth = 1;
  return failure.error;
}

Bytes FakeBacking::available() const {
  const Bytes within = options_.limit.minus(committed_);
  return available_ ? std::min(within, *available_) : within;
}

GrowError FakeBacking::refusal(const Request& request) const {
  Denial why;
  const bool over = committed_ + request.min_bytes > options_.limit;
  why.reason = over ? Denial::Reason::kSliceLimit : Denial::Reason::kNoMemory;
  why.device = properties_.device;
  why.asked = request.bytes;
  why.asked_least = request.min_bytes;
  why.pool = options_.limit;
  why.free = available();
  why.waited = why.wait_limit = over ? std::chrono::milliseconds{0} : request.wait;
  why.holders = {{7, 4711, "somebody_else", options_.limit.minus(committed_), "tenant"}};
  const bool waited = request.wait.count() > 0 && !over;
  return {Error{waited ? Code::kDeadlineExceeded : Code::kResourceExhausted,
                to_string(request.min_bytes) + " asked for, " + to_string(available()) + " available"},
          std::move(why)};
}

std::vector<Extent> FakeBacking::make(Bytes bytes, Bytes largest) {
  std::vector<Extent> made;
  std::uint64_t size = options_.granularity.count * 1024;
  while (bytes.count > 0) {
    const bool too_large = options_.heeds_largest && !largest.is_zero() && size > largest.count;
    if (size > options_.granularity.count && (size > bytes.count || too_large)) {
      size /= 4;
      continue;
    }
    Held held{{size}, file_end_, 0};
    if (auto& holes = holes_[size]; !holes.empty()) {
      held.offset = holes.back();
      holes.pop_back();
    } else {
      file_end_ += size;
    }
    made.push_back({next_id_, held.size});
    held_.emplace(next_id_++, held);
    bytes -= held.size;
  }
  if (file_.valid() && ::ftruncate(file_.get(), static_cast<off_t>(file_end_)) != 0)
    broken_rule("no host memory");
  return made;
}

Result<std::vector<Extent>, GrowError> FakeBacking::obtain(const Request& request) {
  if (obtaining_.exchange(true)) broken_rule("obtain while another obtain is under way");
  std::function<void(const Request&)> call;
  {
    const std::lock_guard lock(mutex_);
    call = on_obtain_;
  }
  {
    const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> over(
        &obtaining_, [](std::atomic<bool>* obtaining) { *obtaining = false; });  // the call may throw
    if (call) call(request);
  }
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  const std::uint64_t unit = options_.granularity.count;
  if (request.bytes.is_zero() || request.bytes.count % unit != 0 || request.min_bytes > request.bytes) {
    broken_rule("a request for " + to_string(request.min_bytes) + " to " + to_string(request.bytes) +
                " in units of " + to_string(options_.granularity));
  }
  if (const auto error = counted(Call::kObtain)) return GrowError(*error);
  const Bytes least = std::max(*request.min_bytes.rounded_up(options_.granularity), options_.granularity);
  Bytes granted = std::min(request.bytes, available().rounded_down(options_.granularity));
  if (granted < least) return refusal(request);
  if (on_grant_) granted = std::clamp(on_grant_(least, granted), least, granted);
  committed_ += granted.rounded_down(options_.granularity);
  most_committed_ = std::max(most_committed_, committed_);
  if (available_) available_ = *available_ - granted.rounded_down(options_.granularity);
  return make(granted.rounded_down(options_.granularity), request.largest);
}

void FakeBacking::check_mappable(Address at, std::span<const Extent> extents) const {
  std::set<std::uint64_t> seen;
  Bytes bytes;
  for (const Extent& extent : extents) {
    const auto held = held_.find(extent.id);
    if (held == held_.end()) broken_rule("map of " + name(extent) + ", which is not held");
    if (held->second.size != extent.size) broken_rule("map of " + name(extent) + ": not its size");
    if (!seen.insert(extent.id).second) broken_rule("map of " + name(extent) + " twice in one call");
    bytes += extent.size;
  }
  if (extents.empty()) broken_rule("map of no extents");
  if (at % options_.granularity.count != 0) broken_rule("map at " + std::to_string(at) + ": no multiple");
  if (at < base_ || bytes > options_.addresses || at - base_ > (options_.addresses - bytes).count) {
    broken_rule("map outside of what is reserved: " + range(at, bytes));
  }
  auto next = mapped_.upper_bound(at);
  if (next != mapped_.end() && next->first < at + bytes.count) broken_rule("map over another extent");
  if (next == mapped_.begin()) return;
  --next;
  if (next->first + held_.at(next->second).size.count > at) broken_rule("map within another extent");
}

void FakeBacking::place(Address at, const Extent& extent) {
  if (observer_ != nullptr) observer_->maps(at, extent);
  Held& held = held_.at(extent.id);
  ++held.mappings;
  mapped_.emplace(at, extent.id);
  mapped_bytes_ += extent.size;
  if (!options_.host_memory) return;
  void* got = ::mmap(pointer(at), extent.size.count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     file_.get(), static_cast<off_t>(held.offset));
  if (got == MAP_FAILED) broken_rule("the host does not map " + name(extent));
}

void FakeBacking::displace(Address at, std::uint64_t id) {
  Held& held = held_.at(id);
  if (observer_ != nullptr) observer_->unmaps(at, {id, held.size});
  --held.mappings;
  mapped_bytes_ -= held.size;
  if (!options_.host_memory) return;
  void* got = ::mmap(pointer(at), held.size.count, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (got == MAP_FAILED) broken_rule("the host does not unmap");
}

Result<void> FakeBacking::map(Address at, std::span<const Extent> extents) {
  const std::lock_guard lock(mutex_);
  check_mappable(at, extents);
  if (auto error = counted(Call::kMap)) return std::move(*error);
  for (const Extent& extent : extents) {
    place(at, extent);
    at += extent.size.count;
  }
  return {};
}

Result<void> FakeBacking::unmap(Address at, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  const auto first = mapped_.find(at);
  if (bytes.is_zero() || first == mapped_.end()) {
    broken_rule("unmap of " + range(at, bytes) + ": does not begin with an extent");
  }
  auto last = first;
  Address end = at;
  for (; last != mapped_.end() && last->first == end && end < at + bytes.count; ++last) {
    end += held_.at(last->second).size.count;
  }
  if (end != at + bytes.count) {
    broken_rule("unmap of " + range(at, bytes) + ": a hole, or an extent cut, at " + std::to_string(end));
  }
  if (auto error = counted(Call::kUnmap)) return std::move(*error);
  for (auto one = first; one != last; ++one) displace(one->first, one->second);
  mapped_.erase(first, last);
  return {};
}

void FakeBacking::give_back(std::vector<Extent> extents) {
  const std::lock_guard lock(mutex_);
  for (const Extent& extent : extents) {
    const auto found = held_.find(extent.id);
    if (found == held_.end()) broken_rule("give_back of " + name(extent) + ", which is not held");
    if (found->second.mappings != 0) broken_rule("give_back of " + name(extent) + ", which is mapped");
    if (found->second.size != extent.size) broken_rule("give_back of " + name(extent) + ": not its size");
    if (file_.valid()) {
      // A later extent in this hole reads as zero, as the broker's memory does.
      static_cast<void>(::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    static_cast<off_t>(found->second.offset),
                                    static_cast<off_t>(extent.size.count)));
    }
    holes_[extent.size.count].push_back(found->second.offset);
    committed_ -= extent.size;
    if (available_) available_ = *available_ + extent.size;
    held_.erase(found);
  }
}

Result<FakeBacking::HandleBytes> FakeBacking::export_range(Address at, Bytes bytes, const ExportOptions&) {
  const auto extents = mapped_at(at, bytes);
  if (extents.empty()) broken_rule("a handle of what is not mapped");
  const auto& [begin, extent] = extents.front();
  const std::array<std::uint64_t, 8> words{extent.id, at - begin, bytes.count};
  return std::bit_cast<HandleBytes>(words);
}

void FakeBacking::publish(Bytes in_use) {
  const std::lock_guard lock(mutex_);
  published_ = in_use;
}

namespace {

/// Ends the program where an engine goes on after its end.
class BorrowedBacking final : public allocator::Backing {
 public:
  explicit BorrowedBacking(FakeBacking& of) : of_(of) {}
  const Properties& properties() const override { return of_.properties(); }
  Result<std::vector<Extent>, GrowError> obtain(const Request& request) override {
    return of_.obtain(request);
  }
  Result<void> map(Address at, std::span<const Extent> extents) override { return of_.map(at, extents); }
  Result<void> unmap(Address at, Bytes bytes) override { return of_.unmap(at, bytes); }
  void give_back(std::vector<Extent> extents) override { of_.give_back(std::move(extents)); }
  Result<HandleBytes> export_range(Address at, Bytes bytes, const ExportOptions& options) override {
    return of_.export_range(at, bytes, options);
  }
  Result<void> allow(int ordinal) override { return of_.allow(ordinal); }
  void publish(Bytes in_use) override { of_.publish(in_use); }

 private:
  FakeBacking& of_;
};

}  // namespace

std::unique_ptr<allocator::Backing> borrow(FakeBacking& backing) {
  return std::make_unique<BorrowedBacking>(backing);
}

}  // namespace gpumem::test
