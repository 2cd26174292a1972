#pragma once
#include <deque>
#include <filesystem>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/system/unique_fd.h"
#include "client/cli/monitor/monitor.h"

namespace gpumem::cli::top {

/// Reads the broker's samples on a thread of its own, and begins again when the stream ends.
class Follower {
 public:
  explicit Follower(std::filesystem::path runtime_folder);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  /// Readable when something has come since take().
  int descriptor() const { return news_.get(); }
  struct News {
    std::deque<v1::Sample> samples;
    std::string problem;  ///< why none come at present; empty: they do
  };
  News take();

 private:
  void work(const std::stop_token& stop);
  bool keep(v1::Sample sample);
  void note(std::string problem);

  const std::filesystem::path runtime_folder_;
  UniqueFd news_;
  Mutex mutex_;
  Condition taken_;
  News kept_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace gpumem::cli::top
