#include "tests/support/lanes/frame_lane.h"

#include <poll.h>

#include "base/packet.h"
#include "tests/support/eventually.h"

namespace gpumem::test {

FrameLane::Answer FrameLane::receive() {
  pollfd waiting{lane_.socket(), POLLIN, 0};
  EXPECT_GT(::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 0)
      << "the broker does not answer";
  auto packet = receive_packet(lane_.socket(), lane::kMostBytes, lane::kMostDescriptors);
  if (!packet || packet->bytes.empty()) return {};
  const auto frame = lane::parse(packet->bytes);
  EXPECT_TRUE(frame) << frame.error().message;
  if (!frame) return {};
  return {frame->header, std::string(frame->body), std::move(packet->descriptors)};
}

lane::Welcome FrameLane::greet(const std::string& label) {
  Answer answer = ask(hello(label));
  descriptors_ = std::move(answer.descriptors);
  EXPECT_EQ(descriptors_.size(), 3U);
  return answer.as<lane::Welcome>();
}

bool FrameLane::is_welcomed() {
  if (!lane_.send(lane::Outgoing(hello(), ++last_).bytes())) return false;
  Answer answer = receive();
  descriptors_ = std::move(answer.descriptors);
  return answer.is(lane::Kind::kWelcome);
}

std::uint64_t FrameLane::open_slice(Bytes limit) {
  return ask(lane::OpenSlice{0, limit.count, {}}).as<lane::SliceOpened>().slice;
}

lane::Grow FrameLane::growth(std::uint64_t slice, Bytes bytes, std::chrono::milliseconds wait) const {
  lane::Grow grow{};
  grow.wait = static_cast<std::uint64_t>(std::chrono::nanoseconds(wait).count());
  grow.parts[grow.count++] = {slice, bytes.count, 0, 0};
  return grow;
}

lane::Hello hello(std::string_view label) {
  return {lane::kVersion, lane::kVersion, 0, 0, decltype(lane::Hello::label)::of(label)};
}

}  // namespace gpumem::test
