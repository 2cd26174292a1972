#include "client/shim/memory/slices.h"

#include "client/connection.h"
#include "client/loose_extents.h"
#include "client/open_engine.h"

namespace gpumem::shim {

Result<std::unique_ptr<Slices>> Slices::open(std::shared_ptr<client::Connection> connection,
                                             const AllocatorOptions& options,
                                             std::shared_ptr<client::Room> room, Slices* before) {
  auto engine = client::open_engine(connection, options, std::move(room));
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
