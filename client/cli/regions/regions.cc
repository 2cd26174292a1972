#include "client/cli/regions/regions.h"

#include <iostream>

#include "client/cli/listings.h"
#include "client/cli/monitor.h"
#include "client/cli/table.h"
#include "client/cli/views.h"
#include "gpumem/session.h"

namespace gpumem::cli {

int list_regions(const std::filesystem::path& runtime_folder, const std::string& owner, bool json) {
  auto monitor = Monitor::connect(runtime_folder);
  if (!monitor) return report(monitor.error());
  const auto regions = monitor->regions(owner);
  if (!regions) return report(regions.error());
  std::cout << (json ? json_text(regions_json(*regions))
                     : regions_text(*regions, std::chrono::system_clock::now()))
            << std::flush;
  return std::cout ? 0 : 1;
}

namespace {

Result<void> remove_own(const std::filesystem::path& runtime_folder, const std::string& name,
                        std::uint64_t version) {
  auto session = Session::connect({runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  return session->remove_region(name, version);
}

}  // namespace

int remove_region(const std::filesystem::path& runtime_folder, const std::string& owner,
                  const std::string& name, std::uint64_t version) {
  const auto removed = owner.empty() ? remove_own(runtime_folder, name, version)
                                     : Monitor::remove_region(runtime_folder, owner, name, version);
  if (!removed) return report(removed.error());
  std::cout << printable("removed '" + name + "'" +
                         (version == 0 ? "" : ", version " + std::to_string(version)))
            << std::endl;
  return std::cout ? 0 : 1;
}

}  // namespace gpumem::cli
