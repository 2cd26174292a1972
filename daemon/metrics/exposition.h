#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/http/http_server.h"
#include "base/mutex.h"

namespace gpumem::metrics {

using http::Text;

/// The text of the metrics, shared by all who ask while it is fresh. It is made on a thread of its own, so
/// that a core that is busy holds up neither connections nor their timeouts.
/// Threads  any.
class Exposition {
 public:
  /// Makes the text anew; nothing: it cannot be made any more. May block.
  using Make = std::function<std::optional<std::string>()>;
  using Then = std::function<void(Text)>;
  static constexpr std::chrono::milliseconds kFresh{1000};
  /// Texts there may be at a time. While slow readers hold that many, others get the latest again.
  static constexpr std::size_t kMostTexts = 4;
  /// The most scrapes that may wait for a text.
  static constexpr std::size_t kMostAsking = 64;

  /// `fresh`  a text is given out for so long.
  explicit Exposition(Make make, std::chrono::milliseconds fresh = kFresh);
  /// Waits for what is being made, and answers nobody any more.
  ~Exposition();
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  /// Calls `then` with the text, on the thread of its own; with none, and at once, where too many wait.
  /// Threads  any; does not block.
  void request(Then then);

 private:
  using Clock = std::chrono::steady_clock;

  void work();
  bool next(std::vector<Then>& asking);
  void refresh();
  bool is_fresh() const { return latest_ && Clock::now() - made_ < fresh_; }

  const Make make_;
  const std::chrono::milliseconds fresh_;
  Text latest_;  // this and the next two are the thread's alone
  Clock::time_point made_;
  std::vector<std::weak_ptr<const std::string>> held_;  ///< by anybody, as far as known
  Mutex mutex_;
  Condition wake_;
  std::vector<Then> asking_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpumem::metrics
