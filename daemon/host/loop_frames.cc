// The loop's part that speaks with lanes of frames: it greets, and hands what sessions ask to the receiver.
#include "base/crash_point.h"
#include "daemon/host/loop.h"

namespace gpumem::host {
namespace {

bool opens(lane::Kind kind) { return kind == lane::Kind::kHello || kind == lane::Kind::kResume; }

}  // namespace

// Names that are longer than their places are no names of ours.
lane::Welcome Loop::welcome_of(SessionId session) const {
  lane::Welcome body{};
  body.version = lane::kVersion;
  body.session = session.value;
  body.tenant = decltype(body.tenant)::of(broker_.tenant_name(session));
  body.driver_folder = decltype(body.driver_folder)::of(driver_folder_);
  for (const core::DevicePolicy& device : broker_.policy().devices)
    body.devices[body.count++] = decltype(body.devices)::value_type::of(device.uuid);
  return body;
}

Result<void> Loop::check_versions(std::uint16_t oldest, std::uint16_t newest) {
  if (oldest <= lane::kVersion && newest >= lane::kVersion) return {};
  return Error{Code::kFailedPrecondition, "the client speaks versions " + std::to_string(oldest) + " to " +
                                              std::to_string(newest) + " of the lane, this broker speaks " +
                                              std::to_string(lane::kVersion) +
                                              ": install the same version on both sides"};
}

void Loop::frame(const std::shared_ptr<Lane>& lane, std::string_view packet) {
  const auto frame = lane::parse(packet);
  if (!frame) return lane->close(frame.error().message);
  const bool greets = opens(frame->header.kind);
  if (greets == lane->session().operator bool()) return lane->close("it greeted twice, or not first");
  if (frame->header.kind == lane::Kind::kGoodbye) return lane->note_goodbye();
  run([&](core::Broker& broker, core::TimePoint at) {
    if (greets) {
      const bool is_new = frame->header.kind == lane::Kind::kHello;
      if (auto welcomed = is_new ? greet(lane, *frame) : resume(lane, *frame); !welcomed)
        lane->refuse(welcomed.error(), frame->header.request);
    } else if (auto taken = receiver_->receive(lane->session(), packet, broker, at); !taken) {
      lane->close(taken.error().message);
    }
  });
}

Result<void> Loop::greet(const std::shared_ptr<Lane>& lane, const lane::Incoming& frame) {
  silent_.remove(lane.get());
  auto hello = lane::body_of<lane::Hello>(frame);
  if (!hello) return hello.error();
  if (auto spoken = check_versions(hello->oldest, hello->newest); !spoken) return spoken;
  auto opened = open_session(lane, std::string(hello->label.view()));
  if (!opened) return opened.error();
  const lane::Welcome body = welcome_of(opened->session);
  lane->welcome(opened->session, lane::Outgoing(body, frame.header.request).bytes(), opened->ends.numbers());
  crash_at(CrashPoint::kSessionWelcomed);
  return {};
}

}  // namespace gpumem::host
