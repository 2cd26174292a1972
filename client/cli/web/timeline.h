#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "client/cli/top/picture.h"
#include "client/cli/views/views.h"

namespace gpumem::cli::web {

/// Bytes that are charged to a tenant, without those of the tenants and jobs below it, or to a job.
struct Share {
  std::string name;  ///< printable ASCII
  std::uint64_t bytes = 0;
};

/// The largest shares of a device, the largest first, and then the sum of the others.
std::vector<Share> shares_of(const top::Picture& picture, const std::string& device);

/// What was charged in the last hour.
class Timeline {
 public:
  static constexpr std::chrono::seconds kStep{5};
  static constexpr std::size_t kMostPoints = 720;

  struct Point {
    std::int64_t seconds = 0;  ///< since 1970
    std::vector<std::vector<Share>> devices;
  };

  /// Keeps the point, unless the latest is not yet kStep old.
  void add(Point point);
  /// {"names": [...], "points": [[seconds, [[[place in names, bytes], ...] for each device]], ...]}
  Json json() const;

 private:
  std::deque<Point> points_;
};

}  // namespace gpumem::cli::web
