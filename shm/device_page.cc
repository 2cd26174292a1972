#include "shm/device_page.h"

#include "shm/seqlock.h"

namespace gpumem {

std::string device_page_name(std::string_view uuid) { return std::string(uuid) + ".page"; }

void initialize(DevicePage& page) {
  page = DevicePage{};
  page.header = {kDevicePageMagic, kDevicePageVersion, kDevicePageBytes};
}

Result<std::unique_ptr<DeviceListing>> read_listing(const DevicePage& page) {
  if (page.header.magic != kDevicePageMagic || page.header.version != kDevicePageVersion ||
      page.header.size != kDevicePageBytes)
    return Error{Code::kFailedPrecondition, "the device's page is of another version of gpumem"};
  auto listing = std::make_unique<DeviceListing>();  // too large for the stacks of some threads
  if (!seqlock_read(page.sequence, page.listing, *listing))
    return Error{Code::kUnavailable, "the broker stopped in the middle of an update"};
  if (listing->process_count > kMaxListedProcesses)
    return Error{Code::kInternal, "the device's page names too many processes"};
  return listing;
}

}  // namespace gpumem
