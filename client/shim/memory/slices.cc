#include "client/shim/memory/slices.h"

#include "client/connection.h"
#include "client/loose_extents.h"
#include "client/open_engine.h"

namespace gpumem::shim {

Result<std::unique_ptr<Slices>> Slices::open(std::shared_ptr<client::Connection> connection,
                                             const AllocatorOptions& options,
                                             std::shared_ptr<client::Room> room, Slices* before) {
  auto engine = client::open_engine(connection, options, room);
  if (!engine) return engine.error();
  return std::unique_ptr<Slices>(
      new Slices(std::move(connection), std::move(*engine), options, std::move(room), before));
}

Slices::Slices(std::shared_ptr<client::Connection> connection, std::shared_ptr<allocator::Engine> engine,
               const AllocatorOptions& options, std::shared_ptr<client::Room> room, Slices* before)
    : connection_(std::move(connection)),
      engine_(std::move(engine)),
      options_(options),
      room_(std::move(room)),
      before_(before) {}

Result<void> Slices::open_loose() {
  const MutexLock lock(opening_);
  if (loose_.load() != nullptr) return {};
  auto opened = client::LooseExtents::open(
      connection_, {engine_->properties().device, options_.limit, options_.label, room_}, options_.idle);
  if (!opened) return opened.error();
  loose_.store(opened->release(), std::memory_order_release);
  return {};
}

Bytes Slices::trim(Bytes wanted) {
  const Bytes given = trim_kept(wanted);
  return given + engine_->trim(wanted.minus(given)).value_or(Bytes{});
}

Bytes Slices::trim_kept(Bytes wanted) {
  client::LooseExtents* const loose = loose_.load(std::memory_order_acquire);
  return loose != nullptr ? loose->trim(wanted) : Bytes{};
}

// It is told behind everything that was asked before, and before everything that follows.
void Slices::revoke(const std::array<char, 64>& handle) const {
  if (!is_lost()) connection_->lane().tell_later(lane::RevokeHandle{handle});
}

bool Slices::is_lost() const { return connection_->lane().is_closed(); }

}  // namespace gpumem::shim
