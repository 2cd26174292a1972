#include "client/c/process_default.h"

#include <array>
#include <atomic>

#include "base/thread_guards.h"
#include "client/c/last_error.h"
#include "client/process/fork_guard.h"
#include "cuda/driver.h"

// The process's own session and allocators. They are never destroyed, because frameworks free memory until
// the very end of a process, after the destructors of static objects. When their broker is gone, the next use
// connects to the broker that is there then. What the old session mapped stays usable meanwhile.

namespace gpumem::c_abi {
namespace {

struct Configuration {
  SessionOptions session{};
  AllocatorOptions allocator{};
};

/// The state of one process. A forked child makes its own, which is configured as its parent's.
struct Process : client::OfProcess {
  static constexpr std::size_t kDevices = 64;

  /// `parent`  of the process that this one was forked from; null: there was none.
  explicit Process(const Process* parent)
      : configuration(parent != nullptr ? new Configuration(*parent->configuration.load())
                                        : new Configuration) {}
  ~Process() { delete configuration.load(); }

  std::array<std::atomic<gpumem_allocator*>, kDevices> allocators{};
  Mutex mutex;  ///< held while something is opened
  gpumem_session* session GPUMEM_GUARDED_BY(mutex) = nullptr;
  // Replaced as a whole and with `mutex` held, read by children, in which that may stay locked.
  std::atomic<const Configuration*> configuration;
};

/// What one call may take of the broker's timeout.
class BrokerTime {
 public:
  using Clock = client::Lane::Clock;

  explicit BrokerTime(std::chrono::milliseconds timeout) : deadline_(client::Lane::deadline_in(timeout)) {}
  Clock::time_point deadline() const { return deadline_; }
  /// Time since the call began.
  std::chrono::nanoseconds taken() const { return Clock::now() - begun_; }
  /// Runs `work`, which asks the broker for nothing and does not count: a driver may start for seconds.
  template <class Work>
  auto beside(Work work) {
    const Clock::time_point before = Clock::now();
    auto done = work();
    const auto passed = Clock::now() - before;
    begun_ += passed;
    deadline_ += passed;
    return done;
  }

 private:
  Clock::time_point begun_ = Clock::now();
  Clock::time_point deadline_;
};

Process& process() {
  static std::atomic<Process*> latest{nullptr};
  return client::this_process(latest,
                              [](const Process* parent) { return std::make_unique<Process>(parent); });
}

client::Lane& lane_of(Session& session) { return session.connection()->lane(); }

/// Whether the session's broker is gone. One system call, which does not block.
bool is_lost(gpumem_session& session) {
  const auto open = session.session.use();
  return open && lane_of(**open).is_closed();
}

BrokerTime time_of(const Process& own) { return BrokerTime(own.configuration.load()->session.timeout); }

/// A broker that does not answer costs the process one timeout, not one for each thread and call.
Result<gpumem_session*> session_of(Process& own, BrokerTime::Clock::time_point deadline)
    GPUMEM_REQUIRES(own.mutex) {
  SessionOptions options = own.configuration.load()->session;
  if (own.session != nullptr) {
    if (!is_lost(*own.session)) return own.session;
    if (const auto lost = own.session->session.use())
      options.runtime_folder = lane_of(**lost).runtime_folder();
  }
  auto connected = Session::connect(options, deadline);
  if (!connected) return connected.error();
  return own.session = new gpumem_session(std::move(*connected), Owner::kProcess);
}

/// The UUID of the device that has `ordinal` here. Errors  kNotFound.
Result<std::string> device_of(const Session& session, int ordinal) {
  const auto driver = cuda::Driver::open(session.driver_folder());
  if (!driver) return driver.error();
  for (const cuda::Device& device : (*driver)->devices()) {
    if (device.ordinal == ordinal) return to_string(device.uuid);
  }
  return Error{Code::kNotFound, "this process sees no device " + std::to_string(ordinal) +
                                    " whose memory can be shared; CUDA_VISIBLE_DEVICES says what it sees"};
}

/// In place of `older`, which may be null.
Result<gpumem_allocator*> open_in_place_of(gpumem_allocator* older, Process& own, int ordinal,
                                           BrokerTime& time) GPUMEM_REQUIRES(own.mutex) {
  const auto session = session_of(own, time.deadline());
  if (!session) return session.error();
  const auto open = (*session)->session.use();
  if (!open) return open.error();
  const auto device = time.beside([&] { return device_of(**open, ordinal); });
  if (!device) return device.error();
  AllocatorOptions options = own.configuration.load()->allocator;
  options.device = *device;
  auto opened = open_allocator(**session, options, {Owner::kProcess, older, time.deadline()});
  if (opened && older != nullptr) {
    for (const std::string& name : older->engine.tags()) (void)(*opened)->engine.tag(name);
  }
  if (opened) own.allocators[static_cast<std::size_t>(ordinal)].store(*opened, std::memory_order_release);
  return opened;
}

/// An allocator that was opened before stays, with its memory, until there is a broker again.
Result<DefaultAllocator> open_default(Process& own, int ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= Process::kDevices) {
    return Error{Code::kNotFound, "there is no device " + std::to_string(ordinal)};
  }
  const MutexLock lock(own.mutex);
  auto* known = own.allocators[static_cast<std::size_t>(ordinal)].load(std::memory_order_acquire);
  if (known != nullptr && !is_lost(*known->session)) return DefaultAllocator{known};
  BrokerTime time = time_of(own);
  const auto opened = open_in_place_of(known, own, ordinal, time);
  if (opened) return DefaultAllocator{*opened, time.taken()};
  if (known != nullptr) return DefaultAllocator{known};
  return opened.error();
}

Result<void> configure(Process& own, const gpumem_session_options* session,
                       const gpumem_allocator_options* allocator) {
  auto session_options = read_options(session);
  if (!session_options) return session_options.error();
  auto allocator_options = read_options(allocator);
  if (!allocator_options) return allocator_options.error();
  if (!allocator_options->device.empty()) {
    return Error{Code::kInvalidArgument, "the process's own allocators are of whatever device is asked for"};
  }
  const MutexLock lock(own.mutex);
  if (own.session != nullptr) {
    return Error{Code::kFailedPrecondition, "the process's own session is open already; say this before"};
  }
  const auto fresh = new Configuration{std::move(*session_options), std::move(*allocator_options)};
  delete own.configuration.exchange(fresh);
  return {};
}

}  // namespace

gpumem_allocator& current_of(gpumem_allocator& allocator) {
  if (allocator.owner != Owner::kProcess || !allocator.is_of_this_process()) return allocator;
  return *process().allocators[static_cast<std::size_t>(allocator.ordinal)].load(std::memory_order_acquire);
}

Result<DefaultAllocator> default_allocator(int device) {
  Process& own = process();
  if (device >= 0 && static_cast<std::size_t>(device) < own.allocators.size()) {
    auto* known = own.allocators[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
    if (known != nullptr) return DefaultAllocator{known};
  }
  const NotCancelled whole;
  return open_default(own, device);
}

DefaultAllocator successor_of(gpumem_allocator& lost) {
  if (&current_of(lost) != &lost) return {&current_of(lost)};
  if (lost.owner != Owner::kProcess || !is_lost(*lost.session)) return {};
  const auto newest = open_default(process(), lost.ordinal);
  return newest && newest->handle != &lost ? *newest : DefaultAllocator{};
}

allocator::Engine& engine_of(gpumem_allocator& allocator, std::uint64_t address) {
  if (allocator.engine.has_address(address)) return allocator.engine;
  for (auto* other = &current_of(allocator); other != nullptr; other = other->older) {
    if (other->engine.has_address(address)) return other->engine;
  }
  return allocator.engine;
}

std::vector<gpumem_allocator*> process_allocators() {
  std::vector<gpumem_allocator*> found;
  for (const auto& newest : process().allocators) {
    if (auto* known = newest.load(std::memory_order_acquire); known != nullptr) found.push_back(known);
  }
  return found;
}

gpumem_allocator* process_allocator_of(std::uint64_t address) {
  for (const auto& newest : process().allocators) {
    for (auto* one = newest.load(std::memory_order_acquire); one != nullptr; one = one->older) {
      if (one->engine.has_address(address)) return one;
    }
  }
  return nullptr;
}

}  // namespace gpumem::c_abi

using gpumem::c_abi::caught;
using gpumem::c_abi::fail;
using gpumem::c_abi::guarded;
using gpumem::c_abi::not_null;

extern "C" {

gpumem_status gpumem_configure_default(const gpumem_session_options* session,
                                       const gpumem_allocator_options* allocator) noexcept {
  return guarded([&] {
    const auto done = gpumem::c_abi::configure(gpumem::c_abi::process(), session, allocator);
    return done ? GPUMEM_OK : fail(done.error());
  });
}

gpumem_status gpumem_default_session(gpumem_session** session) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "where to store the session"); !given) return fail(given.error());
    auto& own = gpumem::c_abi::process();
    const gpumem::MutexLock lock(own.mutex);
    const auto connected = gpumem::c_abi::session_of(own, gpumem::c_abi::time_of(own).deadline());
    if (!connected) return fail(connected.error());
    *session = *connected;
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_default_allocator(int device, gpumem_allocator** allocator) noexcept {
  return caught([&] {
    if (auto given = not_null(allocator, "where to store the allocator"); !given) return fail(given.error());
    const auto opened = gpumem::c_abi::default_allocator(device);
    if (!opened) return fail(opened.error());
    *allocator = opened->handle;
    return GPUMEM_OK;
  });
}

}  // extern "C"
