#include "client/cli/web/timeline.h"

#include <algorithm>
#include <map>

#include "base/text/printable.h"
#include "client/cli/views/names.h"

namespace gpumem::cli::web {
namespace {

constexpr std::size_t kMostShares = 16;
constexpr const char* kOthers = "others";

std::uint64_t charged_to(const v1::JobInfo& job, const std::string& device) {
  for (const v1::JobUsage& usage : job.devices())
    if (usage.device() == device) return usage.charged();
  return 0;
}

}  // namespace

std::vector<Share> shares_of(const top::Picture& picture, const std::string& device) {
  std::map<std::string, std::uint64_t> below;  // by tenant: what those below it have
  std::vector<Share> shares;
  for (const auto& [key, usage] : picture.tenants())
    if (key.second == device) below[usage.parent()] += usage.charged();
  for (const auto& [id, job] : picture.jobs()) {
    const std::uint64_t charged = charged_to(job, device);
    below[job.tenant()] += charged;
    const std::string label = job.label().empty() ? "" : " " + job.label();
    shares.push_back(
        {escape_non_ascii(tenant_text(job.tenant()) + ", job " + std::to_string(id) + label), charged});
  }
  for (const auto& [key, usage] : picture.tenants())
    if (key.second == device)
      shares.push_back({escape_non_ascii(tenant_text(key.first)),
                        usage.charged() - std::min(usage.charged(), below[key.first])});
  std::erase_if(shares, [](const Share& one) { return one.bytes == 0; });
  std::ranges::stable_sort(shares, [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  if (shares.size() <= kMostShares) return shares;
  std::uint64_t others = 0;
  for (std::size_t i = kMostShares; i < shares.size(); ++i) others += shares[i].bytes;
  shares.resize(kMostShares);
  shares.push_back({kOthers, others});
  return shares;
}

void Timeline::add(Point point) {
  if (!points_.empty() && point.seconds < points_.back().seconds + kStep.count()) {
    if (point.seconds >= points_.back().seconds) return;
    points_.clear();  // the clock was set back
  }
  points_.push_back(std::move(point));
  if (points_.size() > kMostPoints) points_.pop_front();
}

Json Timeline::json() const {
  std::map<std::string, std::size_t> places;
  Json names = Json::array(), points = Json::array();
  for (const Point& point : points_) {
    Json devices = Json::array();
    for (const std::vector<Share>& shares : point.devices) {
      Json list = Json::array();
      for (const Share& share : shares) {
        const auto [place, is_new] = places.try_emplace(share.name, names.size());
        if (is_new) names.push_back(share.name);
        list.push_back({place->second, share.bytes});
      }
      devices.push_back(std::move(list));
    }
    points.push_back({point.seconds, std::move(devices)});
  }
  return {{"names", std::move(names)}, {"points", std::move(points)}};
}

}  // namespace gpumem::cli::web
