#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/system/unique_fd.h"
#include "gpumem/bytes.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::test {

/// A service manager as far as brokers use one: it keeps the descriptors that they give it, as sd_notify(3)
/// says, and starts the next one with them, as sd_listen_fds(3) does. Threads  any.
class StandInManager {
 public:
  StandInManager();
  ~StandInManager();
  StandInManager(const StandInManager&) = delete;
  StandInManager& operator=(const StandInManager&) = delete;

  /// For brokers that it hears: NOTIFY_SOCKET.
  std::pair<std::string, std::string> environment() const;
  /// A program that is gpumemd, and has what is kept when prepare() was called last: BrokerOptions::program.
  std::filesystem::path program() const { return folder_ / "gpumemd"; }
  void prepare();
  /// The next program has been started: it alone has what was prepared.
  void release() { passed_.clear(); }

  /// The names under which descriptors are kept.
  std::set<std::string> names() const;
  /// The size of the memory behind them.
  Bytes bytes() const;

 private:
  void listen();
  void take(const std::string& said, std::vector<UniqueFd> descriptors);

  TemporaryFolder folder_;
  UniqueFd socket_;
  UniqueFd stop_;
  mutable std::mutex mutex_;
  std::multimap<std::string, UniqueFd> kept_;  // by mutex_
  std::vector<UniqueFd> passed_;
  std::thread thread_;
};

}  // namespace gpumem::test
