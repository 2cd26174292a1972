#include "sim/control/control_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "sim/machine/shared_file.h"

namespace gpumem::sim {
namespace {

void fill(void* page) {
  auto* const control = static_cast<layout::Control*>(page);  // zero already, and stays so where not set
  control->magic = layout::kControlMagic;
  control->version = layout::kControlVersion;
  control->size = sizeof(layout::Control);
  init_shared_mutex(control->mutex);
}

/// Word by word and atomically: a copy made while another process writes is thrown away, but is no data race.
template <class T>
void load(T* to, const T* from, std::size_t count) {
  auto* const words = reinterpret_cast<std::uint64_t*>(to);
  auto* const source = reinterpret_cast<std::uint64_t*>(const_cast<T*>(from));
  for (std::size_t i = 0; i < count * sizeof(T) / sizeof *words; ++i) {
    words[i] = std::atomic_ref(source[i]).load(std::memory_order_relaxed);
  }
}

template <class T>
void store(T* to, const T* from, std::size_t count) {
  auto* const words = reinterpret_cast<std::uint64_t*>(to);
  const auto* const source = reinterpret_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < count * sizeof(T) / sizeof *words; ++i) {
    std::atomic_ref(words[i]).store(source[i], std::memory_order_relaxed);
  }
}

}  // namespace

/// The editors' lock. The edit of a dead editor needs no repair: it lies in the bank that is not in force.
class ControlFile::Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { ::pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

Result<std::unique_ptr<ControlFile>> ControlFile::open(const Machine& machine) {
  auto mapped = map_shared_file(machine, "control", sizeof(layout::Control), fill);
  if (!mapped) return mapped.error();
  std::unique_ptr<ControlFile> file(new ControlFile(static_cast<layout::Control*>(*mapped)));
  const layout::Control& page = *file->shared_;
  if (page.magic != layout::kControlMagic || page.version != layout::kControlVersion ||
      page.size != sizeof(layout::Control)) {
    return Error{Code::kInternal, (machine.data_folder() / "control").string() +
                                      ": damaged or of another version; create the machine anew"};
  }
  return file;
}

ControlFile::~ControlFile() { ::munmap(shared_, sizeof(layout::Control)); }

ControlContents ControlFile::read() const {
  ControlContents contents;
  for (;;) {  // comes round again only if an edit ended meanwhile, two at least to spoil the copy
    contents.state = state(std::memory_order_acquire);
    const layout::Bank& bank = shared_->banks[contents.state & layout::kStateBank];
    std::uint64_t counts = 0;
    load(&counts, reinterpret_cast<const std::uint64_t*>(&bank), 1);
    static_assert(offsetof(layout::Bank, rule_count) == 0 && offsetof(layout::Bank, cost_count) == 4);
    contents.rules.resize(std::min(static_cast<std::uint32_t>(counts), layout::kRules));
    contents.costs.resize(std::min(static_cast<std::uint32_t>(counts >> 32), layout::kCosts));
    load(contents.rules.data(), bank.rules, contents.rules.size());
    load(contents.costs.data(), bank.costs, contents.costs.size());
    std::atomic_thread_fence(std::memory_order_acquire);
    if (state() == contents.state) break;
  }
  for (auto& rule : contents.rules) rule.call[layout::kCallLength - 1] = '\0';
  for (auto& cost : contents.costs) cost.call[layout::kCallLength - 1] = '\0';
  return contents;
}

Result<void> ControlFile::edit(const std::function<Result<void>(ControlContents&)>& change) {
  const Lock lock(shared_->mutex);
  ControlContents contents = read();
  if (auto changed = change(contents); !changed) return changed;
  if (contents.rules.size() > layout::kRules) {
    return Error{Code::kResourceExhausted, "a machine has at most " + std::to_string(layout::kRules) +
                                               " fault rules; clear those that are there first"};
  }
  if (contents.costs.size() > layout::kCosts) {
    return Error{Code::kResourceExhausted,
                 "a machine has at most " + std::to_string(layout::kCosts) + " costs; the profile has more"};
  }
  publish(contents);
  return {};
}

void ControlFile::publish(const ControlContents& contents) {
  layout::Bank& bank = shared_->banks[(contents.state & layout::kStateBank) ^ 1];
  // A reader that is still copying the last but one edit and reads a word written below sees that the state
  // has changed.
  std::atomic_thread_fence(std::memory_order_release);
  const std::uint64_t counts = contents.rules.size() | std::uint64_t{contents.costs.size()} << 32;
  store(reinterpret_cast<std::uint64_t*>(&bank), &counts, 1);
  store(bank.rules, contents.rules.data(), contents.rules.size());
  store(bank.costs, contents.costs.data(), contents.costs.size());
  std::uint64_t next = (contents.state / layout::kStateRevision + 1) * layout::kStateRevision;
  next |= (contents.state & layout::kStateBank) ^ 1;
  if (counts != 0) next |= layout::kStateActive;
  std::atomic_ref(shared_->state).store(next, std::memory_order_release);
}

std::uint32_t ControlFile::take_counter(const ControlContents& contents) {
  const auto is_taken = [&](std::uint32_t index) {
    return std::ranges::any_of(contents.rules, [&](const auto& rule) { return rule.counter == index; });
  };
  do {
    shared_->last_counter = (shared_->last_counter + 1) % layout::kCounters;
  } while (is_taken(shared_->last_counter));
  layout::Counter& fresh = counter(shared_->last_counter);
  std::atomic_ref(fresh.matches).store(0, std::memory_order_relaxed);
  std::atomic_ref(fresh.hits).store(0, std::memory_order_relaxed);
  return shared_->last_counter;
}

}  // namespace gpumem::sim
