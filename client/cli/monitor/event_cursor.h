#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include "gpumem/v1/broker.pb.h"

namespace gpumem::cli {

/// Joins streams of events without a gap and without telling one twice: a stream that begins at the time of
/// the last event tells all of that time again.
class EventCursor {
 public:
  /// `since`  RFC 3339: where the first stream begins; empty: with the next event.
  explicit EventCursor(std::string since = {}) : time_(std::move(since)) {}

  /// Where the next stream begins, as WatchEventsRequest.since; it is begun now.
  const std::string& begin() {
    repeats_ = at_time_;
    return time_;
  }
  /// Whether the stream tells the event for the first time.
  bool is_new(const v1::Event& event) {
    if (event.time() != time_) {
      time_ = event.time();
      at_time_ = repeats_ = 0;
    }
    if (repeats_ > 0) return --repeats_, false;
    ++at_time_;
    return true;
  }

 private:
  std::string time_;
  std::size_t at_time_ = 0;  ///< events of that time
  std::size_t repeats_ = 0;  ///< the number of them that the stream will still repeat
};

}  // namespace gpumem::cli
