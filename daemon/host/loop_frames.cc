// The loop's part that speaks with lanes of frames: it greets, and hands what sessions ask to the receiver.
#include "base/label.h"
#include "daemon/host/loop.h"

namespace gpumem::host {
namespace {

// Names that are longer than their places are no names of ours.
lane::Welcome welcome_of(SessionId session, const core::Broker& broker, const std::string& driver_folder) {
  lane::Welcome body{};
  body.version = lane::kVersion;
  body.session = session.value;
  body.tenant = decltype(body.tenant)::of(broker.tenant_name(session));
  body.driver_folder = decltype(body.driver_folder)::of(driver_folder);
  for (const core::DevicePolicy& device : broker.policy().devices)
    body.devices[body.count++] = decltype(body.devices)::value_type::of(device.uuid);
  return body;
}

Result<lane::Hello> hello_of(const lane::Incoming& frame) {
  auto hello = lane::body_of<lane::Hello>(frame);
  if (!hello) return hello.error();
  if (hello->oldest > lane::kVersion || hello->newest < lane::kOldestVersion) {
    return Error{Code::kFailedPrecondition,
                 "the client speaks versions " + std::to_string(hello->oldest) + " to " +
                     std::to_string(hello->newest) + " of the lane, this broker speaks " +
                     std::to_string(lane::kVersion) +
                     " and the one before: install the same version on both sides"};
  }
  if (auto label = check_label(hello->label.view()); !label) return label.error();
  return hello;
}

}  // namespace

std::array<int, 3> Loop::Opened::numbers() const {
  return {descriptors[0].get(), descriptors[1].get(), descriptors[2].get()};
}

void Loop::frame(const std::shared_ptr<Lane>& lane, std::string_view packet) {
  const auto frame = lane::parse(packet);
  if (!frame) return lane->close(frame.error().message);
  const bool greets = frame->header.kind == lane::Kind::kHello;
  if (greets == lane->session().operator bool()) return lane->close("it greeted twice, or not first");
  if (frame->header.kind == lane::Kind::kGoodbye) return lane->note_goodbye();
  run([&](core::Broker& broker, core::TimePoint at) {
    if (greets) {
      silent_.remove(lane.get());
      if (auto welcomed = greet(lane, *frame); !welcomed)
        lane->refuse(welcomed.error(), frame->header.request);
    } else if (auto taken = receiver_->receive(lane->session(), packet, broker, at); !taken) {
      lane->close(taken.error().message);
    }
  });
}

Result<void> Loop::greet(const std::shared_ptr<Lane>& lane, const lane::Incoming& frame) {
  auto hello = hello_of(frame);
  if (!hello) return hello.error();
  auto opened = open_session(lane, std::string(hello->label.view()));
  if (!opened) return opened.error();
  const lane::Welcome body = welcome_of(opened->session, broker_, driver_folder_);
  lane->welcome_by_frame(opened->session, lane::Outgoing(body, frame.header.request).bytes(),
                         opened->numbers());
  return {};
}

}  // namespace gpumem::host
