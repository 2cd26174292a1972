#pragma once
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/text/device_name.h"
#include "client/lane/lane.h"
#include "client/session/figures.h"
#include "client/session/pressure_listener.h"
#include "cuda/memory.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// A device that both the broker and this process see, or the host store.
struct SharedDevice {
  const cuda::Driver* driver = nullptr;  ///< null: it is a host store of files
  const cuda::Device* device =
      nullptr;            ///< likewise; cuda::host_device(): a host store of the driver's memory
  std::string uuid;       ///< as the broker spells it
  std::size_t index = 0;  ///< in the shared pages
  /// For people: `gpu0`, `host`.
  std::string name() const { return is_host() ? uuid : device_name(index); }
  bool is_host() const { return uuid == kHostStore; }
  /// Its memory is files, which the kernel maps. Otherwise it is the driver's.
  bool has_files() const { return driver == nullptr; }
  /// This process's; -1: it is the host store.
  int ordinal() const { return has_files() ? cuda::kHostOrdinal : device->ordinal; }
};

/// The lane and the pages, shared by a session and its slices. Ends with the last of them.
/// Threads  any.
class Connection {
 public:
  /// Takes from the environment what `options` leave open.
  /// `driver`  the folder of the driver library, in place of the one that the broker names; empty: that one.
  /// Errors  as Session::connect.   Blocks  until `deadline` at most, or for the timeout; for a broker that
  /// this process has waited for in vain, not at all.
  static Result<std::shared_ptr<Connection>> open(const SessionOptions& options,
                                                  Lane::Clock::time_point deadline,
                                                  const std::filesystem::path& driver = {});
  static Result<std::shared_ptr<Connection>> open(const SessionOptions& options,
                                                  const std::filesystem::path& driver = {}) {
    return open(options, Lane::deadline_in(options.timeout), driver);
  }
  /// Waits for the pressure thread and closes the session at the broker. Not run in a forked child.
  ~Connection();

  /// Errors  kFailedPrecondition: in a forked child.
  Result<void> usable() const { return check_not_forked(generation_); }

  /// The device `wanted`, a UUID or `gpu0` by its place at the broker; if empty, the first that both sides
  /// see. Opens the driver. Errors  kNotFound, kInvalidArgument (neither), kFailedPrecondition (driver).
  Result<SharedDevice> find_device(const std::string& wanted) const;
  /// find_device(), or the host store if `wanted` names it.
  Result<SharedDevice> find_memory(const std::string& wanted) const {
    return wanted == kHostStore ? find_host_store() : find_device(wanted);
  }
  /// The host store. Errors  kNotFound: the broker has none; as open_driver(): its memory is the driver's.
  Result<SharedDevice> find_host_store() const;
  /// The driver that the session's devices are of. Errors  as cuda::Driver::open; kFailedPrecondition: it was
  /// opened before the process was forked.
  Result<const cuda::Driver*> open_driver() const;

  /// Errors  as shm's read_figures.
  Result<BrokerFigures> broker_figures() const { return read_figures(*broker_page_); }

  /// The index of the device that the broker spells or means as `uuid`, or `gpu0`. Needs no driver.
  /// Errors  kNotFound.
  Result<std::size_t> device_index(const std::string& uuid) const;

  const Welcome& welcome() const { return welcome_; }
  const std::string& driver_folder() const { return driver_folder_; }
  Lane& lane() { return *lane_; }
  Figures& figures() { return figures_; }
  PressureListener& pressure() { return pressure_; }
  std::chrono::milliseconds timeout() const { return lane_->timeout(); }
  /// How long a growth waits for memory that may wait for `asked`; nothing: as long as GPUMEM_WAIT says.
  std::chrono::milliseconds wait_of(std::optional<std::chrono::milliseconds> asked) const {
    return std::clamp(asked.value_or(default_wait_), std::chrono::milliseconds::zero(), kLongestWait);
  }
  /// The limit of each slice on `device`, of which its caller wants `limit`. Zero: none but the tenant's.
  /// GPUMEM_LIMIT bounds it, in a job as well: the process's limit may be smaller.   Errors  as
  /// broker_figures().
  Result<Bytes> slice_limit(const SharedDevice& device, Bytes limit) const;

 private:
  struct Parts;
  explicit Connection(Parts parts);
  /// The session goes on with another broker, by its pages and its doorbell. Errors  as open().
  Result<void> take(Greeting greeting);

  const std::uint64_t generation_ = process_generation();
  const Welcome welcome_;
  const std::string driver_folder_;
  const std::chrono::milliseconds default_wait_;
  const Bytes limit_;  ///< of each slice; zero: none
  const std::unique_ptr<Lane> lane_;
  const SharedPage<const BrokerPage> broker_page_;
  const SharedPage<ClientPage> client_page_;
  Figures figures_;
  PressureListener pressure_;
};

}  // namespace gpumem::client
