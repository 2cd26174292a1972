#include "daemon/host/sockets/http2_guard.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/core/words/refusals.h"

namespace gpumem::host {
namespace {

Error too_much(const std::string& words) { return core::refusal(core::Bound::kApiConnections, words); }

Error broken(const std::string& words) {
  return {Code::kInvalidArgument, "it does not speak HTTP/2: " + words};
}

std::uint32_t number(std::span<const std::uint8_t> bytes) {
  std::uint32_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

}  // namespace

std::shared_ptr<UserCalls> CallsOfUsers::of(std::uint64_t account) {
  const auto now = UserCalls::Clock::now();
  std::erase_if(users_, [now](const auto& one) {
    one.second->count_time(now);
    return one.second.use_count() == 1 && one.second->taken_back == 0;
  });
  std::shared_ptr<UserCalls>& calls = users_[account];
  if (calls == nullptr) calls = std::make_shared<UserCalls>();
  return calls;
}

bool Http2Frames::read_header(std::span<const std::byte>& bytes) {
  const std::size_t count = std::min(bytes.size(), header_.size() - header_size_);
  for (std::size_t i = 0; i < count; ++i) header_[header_size_ + i] = static_cast<std::uint8_t>(bytes[i]);
  bytes = bytes.subspan(count);
  header_size_ += count;
  if (header_size_ < header_.size()) return false;
  header_size_ = 0;
  const std::span<const std::uint8_t> all(header_);
  frame_ = {number(all.subspan(0, 3)), static_cast<Kind>(header_[3]), header_[4],
            number(all.subspan(5)) & 0x7fff'ffffU};
  left_ = frame_.length;
  return true;
}

template <class Begin, class Payload>
Result<void> Http2Frames::read(std::span<const std::byte> bytes, Begin begin, Payload payload) {
  const std::size_t skipped = std::min(skipped_, bytes.size());
  skipped_ -= skipped;
  bytes = bytes.subspan(skipped);
  while (!bytes.empty()) {
    if (left_ == 0) {
      if (!read_header(bytes)) return {};
      if (auto begun = begin(frame_); !begun) return begun;
    }
    const auto part = bytes.first(std::min(left_, bytes.size()));
    bytes = bytes.subspan(part.size());
    left_ -= part.size();
    if (part.empty()) continue;
    if (auto taken = payload(frame_, part); !taken) return taken;
  }
  return {};
}

Http2Guard::~Http2Guard() {
  while (!streams_.empty()) take_back(streams_.begin()->first);
}

Result<void> Http2Guard::from_client(std::span<const std::byte> bytes) {
  return in_.read(
      bytes, [this](const Http2Frames::Frame& frame) { return begin(frame); },
      [this](const Http2Frames::Frame& frame, std::span<const std::byte> part) -> Result<void> {
        return frame.kind == Http2Frames::Kind::kData ? take_data(frame.stream, part) : Result<void>();
      });
}

void Http2Guard::from_broker(std::span<const std::byte> bytes) {
  static_cast<void>(out_.read(
      bytes,
      [this](const Http2Frames::Frame& frame) -> Result<void> {
        const bool message =
            frame.kind == Http2Frames::Kind::kData || frame.kind == Http2Frames::Kind::kHeaders;
        if (frame.kind == Http2Frames::Kind::kReset ||
            (message && (frame.flags & Http2Frames::kEndStream) != 0))
          close(frame.stream);
        return {};
      },
      [](const Http2Frames::Frame&, std::span<const std::byte>) -> Result<void> { return {}; }));
}

Result<void> Http2Guard::begin(const Http2Frames::Frame& frame) {
  constexpr std::uint8_t kPadded = 8;
  if (frame.length > kMostFrame)
    return broken("a frame has more than " + std::to_string(kMostFrame) + " bytes");
  switch (frame.kind) {
    case Http2Frames::Kind::kHeaders:
      headers_ = frame.length;
      return frame.stream > std::exchange(last_stream_, std::max(last_stream_, frame.stream))
                 ? open(frame.stream)
                 : Result<void>();
    case Http2Frames::Kind::kContinuation:
      headers_ += frame.length;
      if (headers_ > kMostHeaders)
        return too_much("the headers of a call have more than " + std::to_string(kMostHeaders) + " bytes");
      return {};
    case Http2Frames::Kind::kData:
      if ((frame.flags & kPadded) != 0) return broken("gRPC takes no padding");
      return {};
    case Http2Frames::Kind::kReset: take_back(frame.stream); return {};
    case Http2Frames::Kind::kSettings:
      acknowledged_ = acknowledged_ || (frame.flags & Http2Frames::kAcknowledges) != 0;
      return {};
    default: return {};
  }
}

Result<void> Http2Guard::open(std::uint32_t stream) {
  const std::size_t most = acknowledged_ ? kMostStreams : kMostEarlyStreams;
  if (streams_.size() >= most)
    return too_much("it has " + std::to_string(most) + " calls already" +
                    (acknowledged_ ? "" : ", and has not acknowledged the settings"));
  if (user_->streams >= kMostStreamsOfUser)
    return too_much("this user has " + std::to_string(kMostStreamsOfUser) + " calls already");
  user_->count_time(UserCalls::Clock::now());
  if (user_->taken_back >= kMostTakenBackOfUser)
    return too_much("this user has taken back " + std::to_string(kMostTakenBackOfUser) + " calls within " +
                    std::to_string(UserCalls::kTakenBackTime.count()) + " s");
  streams_.try_emplace(stream, Message{user_->counted_from});
  ++user_->streams;
  return {};
}

Result<void> Http2Guard::take_data(std::uint32_t stream, std::span<const std::byte> bytes) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return {};  // gRPC drops it
  while (!bytes.empty()) take(found->second, bytes);
  if (user_->unfinished_bytes > kMostUnfinishedOfUser)
    return too_much("this user has more than " + std::to_string(kMostUnfinishedOfUser) +
                    " bytes in messages that are not sent to their end");
  return {};
}

// Takes a part of the message, up to its end.
void Http2Guard::take(Message& message, std::span<const std::byte>& bytes) {
  constexpr std::size_t kPrefix = 5;  // a flag, then the length
  if (message.prefix_bytes < kPrefix) {
    const auto byte = static_cast<std::size_t>(bytes.front());
    message.left = message.prefix_bytes == 0 ? 0 : message.left << 8 | byte;
    ++message.prefix_bytes;
    bytes = bytes.subspan(1);
  } else {
    const std::size_t part = std::min(message.left, bytes.size());
    message.left -= part;
    message.come += part;
    user_->unfinished_bytes += part;
    bytes = bytes.subspan(part);
  }
  if (message.prefix_bytes < kPrefix || message.left != 0) return;
  user_->unfinished_bytes -= message.come;
  message = {message.counted_from};
}

// By its client, which may happen faster than gRPC ends the call.
void Http2Guard::take_back(std::uint32_t stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  user_->count_time(UserCalls::Clock::now());
  if (found->second.counted_from == user_->counted_from) ++user_->taken_back;
  close(stream);
}

void Http2Guard::close(std::uint32_t stream) {
  const auto closed = streams_.extract(stream);
  if (closed.empty()) return;
  user_->unfinished_bytes -= closed.mapped().come;
  --user_->streams;
}

}  // namespace gpumem::host
