#include "gpumem/slice.h"

#include "client/growth.h"
#include "client/slice_state.h"

namespace gpumem {
namespace {

Result<void> check_usable(const client::SliceState* state) {
  if (state == nullptr) return Error{Code::kFailedPrecondition, "the slice has been moved from"};
  return state->usable();
}

}  // namespace

Slice::Slice(std::unique_ptr<client::SliceState> state) : state_(std::move(state)) {}
Slice::Slice(Slice&&) noexcept = default;
Slice& Slice::operator=(Slice&& other) noexcept {
  if (this == &other) return *this;
  client::abandon_if_forked(state_);
  state_ = std::move(other.state_);
  return *this;
}
Slice::~Slice() { client::abandon_if_forked(state_); }

Result<Bytes, GrowError> Slice::grow(Bytes target, GrowOptions options) {
  if (auto usable = check_usable(state_.get()); !usable) return GrowError(usable.error());
  const client::GrowthPart parts[] = {{state_.get(), target, options.least}};
  auto grown = client::grow_slices(parts, options);
  if (!grown) return grown.error();
  return grown->front();
}

Result<Bytes> Slice::shrink(Bytes target) {
  if (auto usable = check_usable(state_.get()); !usable) return usable.error();
  return state_->shrink(target);
}

Result<Bytes> Slice::release(Bytes bytes, Bytes keep) {
  if (auto usable = check_usable(state_.get()); !usable) return usable.error();
  return state_->release(bytes, keep);
}

std::uint64_t Slice::base() const { return state_->base(); }
Bytes Slice::committed() const { return state_->committed(); }
Bytes Slice::limit() const { return state_->limit(); }
Bytes Slice::granularity() const { return state_->granularity(); }
const std::string& Slice::device() const { return state_->device().uuid; }
int Slice::ordinal() const { return state_->device().device->ordinal; }

bool Slice::set_in_use(Bytes in_use) { return check_usable(state_.get()) && state_->set_in_use(in_use); }

}  // namespace gpumem
