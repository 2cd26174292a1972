#pragma once
#include <cuda.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/process/messages.h"
#include "client/shim/memory/blocks/blocks.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/session/charges.h"
#include "client/shim/memory/session/session.h"
#include "client/shim/memory/session/settings.h"
#include "cuda/driver.h"

namespace gpumem::client {
class SharedLimit;
}  // namespace gpumem::client

namespace gpumem::shim {

/// The limit of a process on the device with this index in the broker's page, in whole units: `wanted`, as
/// far as the tenant's limit allows it; zero: the tenant's limit.
/// Errors  kInvalidArgument: that is less than one unit; as Connection::broker_figures.
Result<Bytes> limit_of(const client::Connection& connection, std::size_t device, Bytes wanted, Bytes unit);

/// What a program sees of its memory on a device.
struct MemoryFigures {
  Bytes total;  ///< the limit: constant, whatever the tenant's or the job's becomes
  Bytes used;   ///< by this process, in whole units of the device's memory; at most the limit
  Bytes free;   ///< the rest, less the most that the others of its job have held so far
};

/// The memory of this process on one device: the slices of its session, the blocks in them, and the limit for
/// all its usage there. Held memory, including idle memory, never passes the limit: the slices and the
/// driver's own memory share one. If the session is lost, blocks stay where they are, and the next
/// allocation comes from the slices of a new session; the limit counts both.
/// Threads  any. No lock is held while the broker or the device is waited for, but while a lost session's
///          slices are replaced.
class DeviceMemory final : public Chargeable {
 public:
  using Uuid = std::array<unsigned char, 16>;

  /// The objects that it uses; all outlive it.
  struct Parts {
    Session& session;
    const Settings& settings;
    const Captures& captures;
  };
  /// Opens a slice of the device with `ordinal` in this process.
  /// Errors  kNotFound: the broker does not lend it; as Session::open_allocator.
  static Result<std::unique_ptr<DeviceMemory>> open(int ordinal, const Parts& parts);

  int ordinal() const { return slices().engine().properties().ordinal; }
  const Uuid& uuid() const { return uuid_; }
  /// Whether other cards (GPUDirect RDMA) may access what is borrowed. The driver does not tell an importer.
  bool is_made_for_direct_access() const { return has_direct_access_; }
  /// Constant, whatever the tenant's limit becomes.
  Bytes limit() const { return budget_.limit(); }
  MemoryFigures figures() const;

  /// Allocates `bytes`, not zero, for work on `stream`, aligned to 512 bytes.
  /// `call`  the program's, for messages.
  /// Errors  OUT_OF_MEMORY; INVALID_VALUE: no such stream.   Blocks  while others hold the memory.
  CUresult allocate(const char* call, Bytes bytes, CUstream stream, CUdeviceptr* at);
  /// As allocate, where `stream` is the caller's context's, if it is the legacy default stream.
  CUresult allocate_in_order(const char* call, Bytes bytes, CUstream stream, CUdeviceptr* at);
  /// As allocate, for work on all streams.
  CUresult allocate_for_all(const char* call, Bytes bytes, CUdeviceptr* at);
  /// `stream` is about to be destroyed. Its freed memory is marked.
  void release_stream(CUstream stream);
  /// As release_stream, for all streams of the program, whose handles may be of use for no longer. They may
  /// be used further.
  void mark_streams();
  /// Gives up `block`, which nobody else has, in the order of `stream`.
  CUresult free_in_order(const Block& block, CUstream stream);
  /// Gives up `block`, which no work uses.
  CUresult free_idle(const Block& block) { return free(block, nullptr); }
  /// Gives up `block` when the work of its context is done. Waits for that, unless a graph is being captured.
  CUresult free_synchronized(const Block& block);

  /// Whether blocks of it can have this address.
  bool has_address(CUdeviceptr address) const { return slices_of(address) != nullptr; }
  /// The slices of the latest session.
  Slices& slices() const { return *slices_.load(std::memory_order_acquire); }
  /// The slices that `address` is of, of this session or one before; or null.
  Slices* slices_of(CUdeviceptr address) const;

  /// From now on the device with `ordinal`, a peer, may use the blocks, too.
  CUresult allow(int ordinal);
  /// Gives idle memory back, all but `keep` of what is borrowed.
  void trim(Bytes keep);

  /// What a call says to the broker. A refusal of a probe is no denial: it is asked again.
  struct Attempt {
    std::chrono::milliseconds wait{};
    bool is_probe = false;
  };
  /// Calls `ask` for `bytes`, first without waiting; if that is refused and waiting may help, as the settings
  /// say: for memory, and for a broker. A signal may end the wait (SignalWatch): kCancelled. `ask` is given
  /// slices and an Attempt, and answers a Result with a GrowError. It is called again with other slices if
  /// its session turns out to be lost.
  template <class Ask>
  auto ask_patiently(Bytes bytes, const Ask& ask) {
    const auto begun = WaitPolicy::Clock::now();  // a broker that is away makes the first attempt take long
    const bool may_wait = waits_.wait_for(bytes, begun).count() != 0;
    auto answer = ask_usable(ask, Attempt{.is_probe = may_wait});
    if (answer) return answer;
    const auto wait = wait_after(answer.error(), bytes);
    if (wait.count() == 0) {
      if (may_wait && answer.error().denial) answer = ask_usable(ask, Attempt{});
      return answer;
    }
    const client::SignalWatch signals;
    const auto end = begun + wait;
    const client::WaitNotice notice(waits_told_, wait_text(answer.error(), bytes, wait), begun);
    answer = ask_while_away(end, [&] {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - WaitPolicy::Clock::now());
      return ask_usable(ask, Attempt{.wait = std::max(left, std::chrono::milliseconds::zero())});
    });
    if (!answer) waits_.timed_out(bytes, WaitPolicy::Clock::now());
    return answer;
  }
  /// In system mode, after a request that no broker has answered as long as it may wait: the device's memory
  /// is the driver's from now on. Blocks that are there stay.
  bool is_left_to_driver() const { return is_left_.load(std::memory_order_relaxed); }
  /// Notes that a request was refused, says why, and answers the driver's code for it.
  CUresult refuse(const char* call, Bytes bytes, const GrowError& why);
  CUresult refuse_over_limit(const char* call, Bytes bytes);
  void tell_refusal_of_driver(const char* call, Bytes bytes, CUresult answered) override;

  /// Takes `bytes` of the limit that are held as they are, outside of the slice's blocks, until release().
  /// Idle memory makes room for them.
  /// Errors  OUT_OF_MEMORY: the limit of the process would be passed.
  CUresult reserve(const char* call, Bytes bytes);
  void release(Bytes bytes);
  /// Errors  OUT_OF_MEMORY: the limit of the process or of its tenant would be passed.
  CUresult charge_outside(const char* call, Bytes bytes) override;
  Bytes charge_outside_up_to(Bytes bytes) override;
  void discharge_outside(Bytes bytes) override;
  /// Whether the driver may take `bytes` more for a context of the program. They are not charged here: the
  /// broker charges what it sees of contexts.
  /// Errors  OUT_OF_MEMORY: the tenant is above its limit, or would be. Idle memory has gone back then.
  CUresult check_context(const char* call, Bytes bytes);
  /// Has the driver make a context by `make`. It is announced, so that the broker leaves the driver memory
  /// for it. Without a broker at present, the driver decides. Returns the driver's result.
  /// Errors  OUT_OF_MEMORY: the driver has none.   Blocks  while others hold the memory.
  CUresult make_context(const char* call, const std::function<CUresult()>& make);
  /// Sets the function that has the driver give back its own idle memory. Once, before other calls.
  void set_trim(std::function<void()> trim) { trim_driver_ = std::move(trim); }

  Bytes granularity() const override { return slices().engine().properties().granularity; }

  /// Frees what could not be freed while a graph was being captured. Waits for its work.
  void free_deferred();

 private:
  DeviceMemory(std::unique_ptr<Slices> slices, std::shared_ptr<client::SharedLimit> shared_limit,
               const cuda::Device& device, const Parts& parts);
  bool leave_to_driver(const Error& why);
  bool reserve_in_budget(Bytes bytes);
  bool take_room(Bytes bytes);
  void trim_driver() {
    if (trim_driver_) trim_driver_();
  }
  template <class Ask>
  auto ask_usable(const Ask& ask, const Attempt& attempt) {
    for (;;) {
      Slices& asked = slices();
      auto answer = ask(asked, attempt);
      if (answer || !is_replaced(asked)) return answer;
    }
  }
  /// After a failure: whether other slices are there in place of `failed`, because its session is lost.
  bool is_replaced(Slices& failed);
  Result<void> replace(Slices& lost) GPUMEM_REQUIRES(replacing_);
  std::chrono::milliseconds wait_after(const GrowError& refused, Bytes bytes) const;
  CUresult free(const Block& block, CUstream stream);
  /// Whether `stream` is the legacy default stream, and the allocator means that of another context by it.
  bool is_of_other_context(CUstream stream) const;
  /// Waits for the work that `allocated` is ordered behind. Frees it again if that fails.
  CUresult wait_for_default(const Block& allocated);
  std::string wait_text(Bytes bytes, std::chrono::milliseconds wait) const;
  /// `refused`  why there is something to wait for.
  std::string wait_text(const Error& refused, Bytes bytes, std::chrono::milliseconds wait) const {
    return is_away(refused) ? wait_for_broker_text(refused, wait) : wait_text(bytes, wait);
  }
  template <class Ask, class AskLast>
  CUresult ask_tenant(const char* call, Bytes bytes, Bytes idle, const Ask& ask, const AskLast& ask_last);
  /// Calls `ask` for `bytes`, and repeats it as long as the settings say: while the tenant has no room and
  /// others may make some, or while there is no broker.
  template <class Ask>
  Result<void> look_patiently(Slices& to, Bytes bytes, const Ask& ask);
  CUresult announce_context(const char* call, std::chrono::milliseconds wait);
  void tell_context(CUresult made);

  std::atomic<Slices*> slices_;
  const std::shared_ptr<client::SharedLimit> shared_limit_;
  Session& session_;
  const Settings& settings_;
  const Captures& captures_;
  const Uuid uuid_;
  const bool has_direct_access_;
  Budget budget_;
  WaitPolicy waits_;
  client::Pace waits_told_;
  client::RefusalMessages messages_;
  std::function<void()> trim_driver_;
  client::RefusalMessages failures_;  ///< not for want of memory
  std::atomic<bool> is_left_{false};
  std::atomic<bool> is_ordered_{false};  ///< something was freed in the order of a stream
  Declaration outside_;
  Mutex replacing_;  ///< held for the broker's answers
  std::vector<int> peers_ GPUMEM_GUARDED_BY(replacing_);
  Mutex mutex_;
  std::vector<Block> deferred_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
