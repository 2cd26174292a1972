#include "client/open_engine.h"

#include "client/broker_backing.h"
#include "client/driver_streams.h"

namespace gpumem::client {
namespace {

using allocator::Engine;
using allocator::EngineOptions;

/// Trims an engine when the broker asks for memory, until the engine is closed.
class EngineTrim final : public Trimmable {
 public:
  EngineTrim(std::shared_ptr<Connection> connection, std::size_t device, Engine& engine)
      : connection_(std::move(connection)), device_(device), engine_(engine) {
    connection_->pressure().add(*this);
  }
  /// Waits for a trim in progress.
  ~EngineTrim() override { connection_->pressure().remove(*this); }

  std::size_t device_index() const override { return device_; }
  Bytes surplus() const override { return engine_.surplus(); }
  Bytes trim(Bytes wanted) override { return engine_.trim(wanted).value_or({}); }

 private:
  const std::shared_ptr<Connection> connection_;
  const std::size_t device_;
  Engine& engine_;
};

std::shared_ptr<Engine> make_engine(std::shared_ptr<Connection> connection,
                                    std::unique_ptr<BrokerBacking> memory, const EngineOptions& options) {
  const SharedDevice device = static_cast<const Borrower&>(*memory).device();
  auto streams = std::make_unique<DriverStreams>(*device.driver, device.device->ordinal);
  auto engine = std::make_unique<Engine>(std::move(memory), std::move(streams), options);
  engine->attach(std::make_shared<EngineTrim>(std::move(connection), device.index, *engine));
  // A forked child leaves its copy alone: neither the engine's threads nor the driver are there.
  const std::uint64_t generation = process_generation();
  return {engine.release(), [generation](Engine* ended) {
            if (check_not_forked(generation)) delete ended;
          }};
}

}  // namespace

Result<std::shared_ptr<Engine>> open_engine(std::shared_ptr<Connection> connection,
                                            const AllocatorOptions& options, std::shared_ptr<Room> room,
                                            std::optional<Lane::Clock::time_point> deadline) {
  if (auto usable = connection->usable(); !usable) return usable.error();
  allocator::ThreadCache::prepare();  // before the library's own thread starts
  auto memory = BrokerBacking::open(
      connection, {options.device, options.limit, options.label, std::move(room), deadline});
  if (!memory) return memory.error();
  const EngineOptions engine{options.wait, options.idle};
  return make_engine(std::move(connection), std::move(*memory), engine);
}

}  // namespace gpumem::client
