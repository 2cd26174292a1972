#pragma once
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/http/http_server.h"
#include "base/mutex.h"
#include "client/cli/monitor/event_cursor.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/top/picture.h"
#include "client/cli/web/timeline.h"

namespace gpumem::cli::web {

/// Follows the broker's samples and events, also those of the next broker, and sends them to every open page.
/// A page is sent three kinds of server-sent events. `hello` is what is known when the page opens: the last
/// hour. `sample` comes each second: sample_json(), with the events since the sample before. `problem` says
/// why no samples come at present.
/// Threads  any.
class Feed {
 public:
  static constexpr std::size_t kMostPages = 8;
  static constexpr std::size_t kMostEvents = 500;

  /// `hello`  what every page is told first.
  Feed(std::filesystem::path runtime_folder, Json hello);

  /// A place for another page, which is free again when nobody holds it any more. Null: all are taken.
  std::shared_ptr<void> take_place();
  void add(std::shared_ptr<void> place, std::shared_ptr<http::Stream> page);

 private:
  void follow_samples(const std::stop_token& stop);
  void follow_events(const std::stop_token& stop);
  void take(v1::Sample sample);
  void take(const v1::Event& event);
  void note(const std::string& problem);
  void send(const char* kind, const Json& message) GPUMEM_REQUIRES(mutex_);
  void forget_closed() GPUMEM_REQUIRES(mutex_);
  Json take_news() GPUMEM_REQUIRES(mutex_);
  std::deque<v1::Event>::const_iterator first_new() const GPUMEM_REQUIRES(mutex_) {
    return events_.end() - static_cast<std::ptrdiff_t>(news_);
  }

  const std::filesystem::path runtime_folder_;
  const Json hello_;
  Mutex mutex_;
  top::Picture picture_ GPUMEM_GUARDED_BY(mutex_);
  Timeline timeline_ GPUMEM_GUARDED_BY(mutex_);
  std::deque<v1::Event> events_ GPUMEM_GUARDED_BY(mutex_);
  std::size_t news_ GPUMEM_GUARDED_BY(mutex_) = 0;  ///< the last events_, which were not sent yet
  EventCursor told_ GPUMEM_GUARDED_BY(mutex_);
  std::string problem_ GPUMEM_GUARDED_BY(mutex_);
  struct Page {
    std::shared_ptr<void> place;
    std::shared_ptr<http::Stream> stream;
  };
  std::vector<Page> pages_ GPUMEM_GUARDED_BY(mutex_);
  const std::shared_ptr<void> places_ = std::make_shared<int>();  ///< one owner more for each place taken
  std::jthread samples_;                                          // the threads end before what they use
  std::jthread events_thread_;
};

}  // namespace gpumem::cli::web
