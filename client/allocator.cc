#include "gpumem/allocator.h"

#include "client/allocator/engine.h"
#include "client/broker_backing.h"
#include "client/driver_streams.h"
#include "gpumem/session.h"

namespace gpumem {
namespace {

using allocator::Engine;
using allocator::EngineOptions;

/// Trims an engine when the broker asks for memory, until the engine is closed.
class EngineTrim final : public client::Trimmable, public Engine::Attachment {
 public:
  EngineTrim(std::shared_ptr<client::Connection> connection, std::size_t device, Engine& engine)
      : connection_(std::move(connection)), device_(device), engine_(engine) {
    connection_->pressure().add(*this);
  }
  /// Waits for a trim in progress.
  ~EngineTrim() override { connection_->pressure().remove(*this); }

  std::size_t device_index() const override { return device_; }
  Bytes surplus() const override { return engine_.surplus(); }
  Bytes trim(Bytes wanted) override { return engine_.trim(wanted).value_or({}); }

 private:
  const std::shared_ptr<client::Connection> connection_;
  const std::size_t device_;
  Engine& engine_;
};

std::shared_ptr<Engine> make_engine(std::shared_ptr<client::Connection> connection,
                                    std::unique_ptr<client::BrokerBacking> memory,
                                    const EngineOptions& options) {
  const client::SharedDevice device = static_cast<const client::Borrower&>(*memory).device();
  auto streams = std::make_unique<client::DriverStreams>(*device.driver, device.device->ordinal);
  auto engine = std::make_unique<Engine>(std::move(memory), std::move(streams), options);
  engine->attach(std::make_unique<EngineTrim>(std::move(connection), device.index, *engine));
  // A forked child leaves its copy alone: neither the engine's threads nor the driver are there.
  const std::uint64_t generation = client::process_generation();
  return {engine.release(), [generation](Engine* ended) {
            if (client::check_not_forked(generation)) delete ended;
          }};
}

Result<void> check(const Engine* engine) {
  if (engine != nullptr) return {};
  return Error{Code::kFailedPrecondition, "the allocator has been moved from"};
}

// The slow paths are separate functions, so that the fast paths save no registers for them.

[[gnu::noinline]] Result<std::uint64_t, GrowError> allocate_slowly(Engine* engine, Bytes bytes,
                                                                   StreamHandle stream,
                                                                   const Placement& placement) {
  if (auto there = check(engine); !there) return GrowError(there.error());
  return engine->allocate(bytes, stream, placement);
}

[[gnu::noinline]] Result<void> deallocate_slowly(Engine* engine, std::uint64_t address, Bytes bytes,
                                                 StreamHandle stream) {
  if (auto there = check(engine); !there) return there;
  return engine->deallocate(address, bytes, stream);
}

}  // namespace

Result<Allocator> Session::open_allocator(const AllocatorOptions& options) {
  if (!connection_) return Error{Code::kFailedPrecondition, "the session has been moved from"};
  if (auto usable = connection_->usable(); !usable) return usable.error();
  auto memory = client::BrokerBacking::open(connection_, {options.device, options.limit, options.label});
  if (!memory) return memory.error();
  const EngineOptions engine{options.wait, options.idle, options.grow_ahead};
  return Allocator(make_engine(connection_, std::move(*memory), engine));
}

Allocator::Allocator(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
Allocator::Allocator(Allocator&&) noexcept = default;
Allocator& Allocator::operator=(Allocator&&) noexcept = default;
Allocator::~Allocator() = default;

Result<std::uint64_t, GrowError> Allocator::allocate(Bytes bytes, StreamHandle stream,
                                                     const Placement& placement) {
  if (engine_ && placement.tag.number == 0 && placement.room.is_zero()) {
    if (const std::uint64_t address = engine_->try_allocate(bytes, stream); address != 0) return address;
  }
  return allocate_slowly(engine_.get(), bytes, stream, placement);
}

Result<void> Allocator::deallocate(std::uint64_t address, Bytes bytes, StreamHandle stream) {
  if (engine_ && engine_->try_deallocate(address, bytes, stream)) return {};
  return deallocate_slowly(engine_.get(), address, bytes, stream);
}

Result<void, GrowError> Allocator::extend(std::uint64_t address, Bytes bytes, Bytes to, StreamHandle stream) {
  if (auto there = check(engine_.get()); !there) return GrowError(there.error());
  return engine_->extend(address, bytes, to, stream);
}

Result<void> Allocator::release_stream(StreamHandle stream) {
  if (auto there = check(engine_.get()); !there) return there;
  return engine_->release_stream(stream);
}

Result<Bytes> Allocator::trim(Bytes bytes) {
  if (auto there = check(engine_.get()); !there) return there.error();
  return engine_->trim(bytes);
}

Result<Tag> Allocator::tag(std::string_view name) {
  if (auto there = check(engine_.get()); !there) return there.error();
  return engine_->tag(name);
}

Result<AllocatorStatistics> Allocator::statistics() const {
  if (auto there = check(engine_.get()); !there) return there.error();
  return engine_->statistics();
}

Result<std::vector<BlockInfo>> Allocator::snapshot() const {
  if (auto there = check(engine_.get()); !there) return there.error();
  return engine_->snapshot();
}

Result<void> Allocator::close() {
  if (auto there = check(engine_.get()); !there) return there;
  return engine_->close();
}

Bytes Allocator::limit() const { return engine_ ? engine_->limit() : Bytes{}; }
Bytes Allocator::granularity() const { return engine_ ? engine_->granularity() : Bytes{}; }

const std::string& Allocator::device() const {
  static const std::string kNone;
  return engine_ ? engine_->device() : kNone;
}

int Allocator::ordinal() const { return engine_ ? engine_->ordinal() : -1; }

}  // namespace gpumem
