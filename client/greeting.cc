#include "client/greeting.h"

#include "client/status.h"
#include "shm/pages.h"

namespace gpumem::client {

Result<Greeting> greeting_of(const lane::Welcome& body, LanePacket& packet) {
  static_assert(std::tuple_size_v<decltype(body.devices)> == kMaxDevices);
  if (body.version != lane::kVersion) {
    return Error{Code::kFailedPrecondition, "the broker speaks version " + std::to_string(body.version) +
                                                " of the lane, this library speaks " +
                                                std::to_string(lane::kVersion) +
                                                ": install the same version on both sides"};
  }
  if (body.session == 0) return protocol_error("a welcome without a session");
  if (packet.lost_descriptors) {
    return Error{Code::kResourceExhausted,
                 "this process has no room for the descriptors of its session; raise RLIMIT_NOFILE"};
  }
  std::vector<OwnFd>& descriptors = packet.descriptors;
  if (descriptors.size() != 3) {
    return protocol_error("a welcome with " + std::to_string(descriptors.size()) +
                          " descriptors instead of 3");
  }
  Greeting greeting{
      {body.session, std::string(body.tenant.view()), std::string(body.driver_folder.view()), {}},
      std::move(descriptors[0]),
      std::move(descriptors[1]),
      std::move(descriptors[2])};
  for (std::uint64_t i = 0; i < body.count; ++i)
    greeting.welcome.devices.emplace_back(body.devices[i].view());
  return greeting;
}

}  // namespace gpumem::client
