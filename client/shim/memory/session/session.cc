#include "client/shim/memory/session/session.h"

#include <algorithm>

#include "client/process/messages.h"
#include "client/session/connection.h"
#include "client/shim/real.h"
#include "client/slice/broker_backing.h"
#include "client/slice/loose_extents.h"

namespace gpumem::shim {

Result<void> Session::open(const std::string& label, std::chrono::milliseconds patience) {
  auto connected =
      client::Connection::open({.label = label}, client::Lane::deadline_in(patience), real_folder());
  if (!connected) return connected.error();
  for (std::size_t i = 0; i < (*connected)->welcome().devices.size(); ++i)
    (void)most_of_others(**connected, i);
  const MutexLock lock(mutex_);
  label_ = label;
  connection_ = std::move(*connected);
  return {};
}

Result<std::shared_ptr<client::Connection>> Session::usable() {
  const MutexLock lock(mutex_);
  if (connection_ == nullptr || !connection_->lane().is_closed()) return connection_;
  auto connected = client::Connection::open(
      {.runtime_folder = connection_->lane().runtime_folder(), .label = label_}, real_folder());
  if (!connected) return connected.error();
  client::say(
      "the session with the broker was lost; memory that is mapped stays usable, and what is allocated from "
      "now on is borrowed in a new session");
  connection_ = std::move(*connected);
  return connection_;
}

Bytes Session::most_of_others(const client::Connection& connection, std::size_t device) {
  std::atomic<std::uint64_t>& most = most_of_others_.at(device);
  std::uint64_t known = most.load();
  if (connection.welcome().job == 0) return {known};
  const auto figures = connection.broker_figures();
  if (!figures) return {known};
  const DeviceFigures& one = figures->devices.at(device);
  const std::uint64_t now = Bytes{one.charged}.minus({one.held}).count;
  while (now > known && !most.compare_exchange_weak(known, now)) {
  }
  return {std::max(now, known)};
}

Result<std::unique_ptr<Slices>> Slices::open(std::shared_ptr<client::Connection> connection,
                                             const AllocatorOptions& options,
                                             std::shared_ptr<client::SharedLimit> shared_limit,
                                             Slices* before) {
  constexpr bool kAnnouncesEnds = true;  // DeviceMemory::release_stream
  auto engine = client::open_engine(connection, options, std::move(shared_limit), {}, kAnnouncesEnds);
  if (!engine) return engine.error();
  return std::unique_ptr<Slices>(new Slices(std::move(connection), std::move(*engine), options, before));
}

Slices::Slices(std::shared_ptr<client::Connection> connection, std::shared_ptr<allocator::Engine> engine,
               const AllocatorOptions& options, Slices* before)
    : connection_(std::move(connection)), engine_(std::move(engine)), options_(options), before_(before) {}

Result<void> Slices::open_loose() {
  const MutexLock lock(opening_);
  if (loose_.load() != nullptr) return {};
  auto opened =
      client::LooseExtents::open(connection_, {engine_->properties().device, options_.limit, options_.label});
  if (!opened) return opened.error();
  loose_.store(opened->release(), std::memory_order_release);
  return {};
}

// The broker receives this frame after all earlier requests and before all later ones.
void Slices::revoke(const std::array<char, 64>& handle) const {
  if (!is_lost()) connection_->lane().tell_later(lane::RevokeHandle{handle});
}

bool Slices::is_lost() const { return connection_->lane().is_closed(); }

}  // namespace gpumem::shim
