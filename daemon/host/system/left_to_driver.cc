#include "daemon/host/system/left_to_driver.h"

#include <unistd.h>

#include <algorithm>

#include "proto/lane.h"

namespace gpumem::host {

LeftToDriver LeftToDriver::read(const std::filesystem::path& runtime_folder) {
  LeftToDriver left;
  if (::access(system_mode::kSwitch, F_OK) != 0) return left;
  left.all_ = ::access(system_mode::kOff, F_OK) == 0 ||
              ::stat((runtime_folder / kLaneSocketName).c_str(), &left.lane_) != 0;
  left.rules_ = system_mode::Rules::read(runtime_folder);
  return left;
}

bool LeftToDriver::contains(const Process& process) const {
  return rules_ && (all_ || rules_->leave_to_driver(process.facts) || !may_connect(process));
}

bool LeftToDriver::may_connect(const Process& process) const {
  if (process.uid == 0) return true;
  if (process.uid == lane_.st_uid) return (lane_.st_mode & S_IWUSR) != 0;
  const bool is_member = std::ranges::find(process.gids, lane_.st_gid) != process.gids.end();
  return (lane_.st_mode & (is_member ? S_IWGRP : S_IWOTH)) != 0;
}

}  // namespace gpumem::host
