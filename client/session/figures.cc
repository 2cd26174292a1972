#include "client/session/figures.h"

#include <algorithm>

namespace gpumem::client {
namespace {

bool same(const ClientFigures& a, const ClientFigures& b) {
  return a.reserved == b.reserved && a.committed == b.committed && a.in_use == b.in_use && a.peak == b.peak;
}

}  // namespace

ClientFigures Figures::snapshot(const Sums& sums) {
  return {sums.reserved.load(), sums.committed.load(), sums.in_use.load(), sums.peak.load()};
}

// Two threads may write the page in either order. So each writes again until its figures are current.
void Figures::apply(std::size_t device, const Change& change) {
  Sums& sums = sums_[device];
  sums.reserved.fetch_add(change.reserved);
  sums.committed.fetch_add(change.committed);
  const std::uint64_t in_use = sums.in_use.fetch_add(change.in_use) + change.in_use;
  std::uint64_t peak = sums.peak.load();
  while (peak < in_use && !sums.peak.compare_exchange_weak(peak, in_use)) {
  }
  ClientFigures written{};
  do {
    written = snapshot(sums);
    write_figures(page_, device, written);
  } while (!same(written, snapshot(sums)));
}

void Figures::publish_all() {
  for (std::size_t device = 0; device < sums_.size(); ++device)
    if (!same(snapshot(sums_[device]), {})) apply(device, {});
}

SliceFigures::SliceFigures(Figures& figures, std::size_t device, std::uint64_t reserved)
    : figures_(figures), device_(device), reserved_(reserved) {
  figures_.apply(device_, {reserved_, 0, 0});
}

SliceFigures::~SliceFigures() {
  figures_.apply(device_, {0 - reserved_, 0 - committed_.load(), 0 - in_use_.load()});
}

void SliceFigures::set_committed(std::uint64_t bytes) {
  const std::uint64_t before = committed_.exchange(bytes, std::memory_order_acq_rel);
  if (bytes < before) publish_in_use();
  figures_.apply(device_, {0, bytes - before, 0});
  if (bytes > before) publish_in_use();
}

void SliceFigures::set_in_use(std::uint64_t bytes) {
  wanted_.store(bytes);
  publish_in_use();
}

// One thread at a time publishes. Otherwise a sum could count a rise before an earlier fall and keep it as a
// peak. No thread waits: the publisher checks again when it is done, and sees what others have stored
// meanwhile.
void SliceFigures::publish_in_use() {
  std::uint64_t now = 0;
  do {
    if (publishing_.exchange(true)) return;
    now = std::min(wanted_.load(), committed_.load());
    const std::uint64_t before = in_use_.exchange(now);
    if (before != now) figures_.apply(device_, {0, 0, now - before});
    publishing_.store(false);
  } while (now != std::min(wanted_.load(), committed_.load()));
}

}  // namespace gpumem::client
