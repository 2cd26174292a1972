#include "shm/pages.h"

#include <atomic>

#include "shm/seqlock.h"

namespace gpumem {
namespace {

std::uint64_t load(const std::uint64_t& word) {
  return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word)).load(std::memory_order_relaxed);
}

void store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_relaxed);
}

}  // namespace

void initialize(BrokerPage& page) {
  page = BrokerPage{};
  page.header = {kBrokerPageMagic, kPageVersion, kSharedPageBytes};
}

void initialize(ClientPage& page) {
  page = ClientPage{};
  page.header = {kClientPageMagic, kPageVersion, kSharedPageBytes};
}

Result<void> validate(const BrokerPage& page) {
  if (page.header.magic != kBrokerPageMagic)
    return Error{Code::kFailedPrecondition, "the broker's page has the wrong magic number"};
  if (page.header.version != kPageVersion || page.header.size != kSharedPageBytes)
    return Error{Code::kFailedPrecondition,
                 "the broker's page is of version " + std::to_string(page.header.version) +
                     ", this library reads version " + std::to_string(kPageVersion)};
  return {};
}

Result<BrokerFigures> read_figures(const BrokerPage& page) {
  const auto figures = seqlock_read(page.sequence, page.figures);
  if (!figures) return Error{Code::kUnavailable, "the broker stopped in the middle of an update"};
  if (figures->device_count > kMaxDevices)
    return Error{Code::kInternal, "the broker's page names too many devices"};
  return *figures;
}

std::optional<ClientFigures> read_figures(const ClientPage& page, std::size_t index, std::uint64_t charged) {
  if (index >= kMaxDevices) return std::nullopt;
  const ClientFigures& shared = page.devices[index];
  const ClientFigures copy{load(shared.reserved), load(shared.committed), load(shared.in_use),
                           load(shared.peak)};
  const bool plausible = copy.in_use <= copy.peak && copy.in_use <= copy.committed &&
                         copy.committed <= copy.reserved && copy.committed <= charged;
  return plausible ? std::optional(copy) : std::nullopt;
}

void write_figures(ClientPage& page, std::size_t index, const ClientFigures& figures) {
  ClientFigures& shared = page.devices[index];
  store(shared.reserved, figures.reserved);
  store(shared.committed, figures.committed);
  store(shared.in_use, figures.in_use);
  store(shared.peak, figures.peak);
}

}  // namespace gpumem
