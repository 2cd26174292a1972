#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>

#include "gpumem/result.h"

namespace gpumem::host {

/// The cost of one user's calls at this moment, over all the user's connections.
struct UserCalls {
  using Clock = std::chrono::steady_clock;

  std::size_t streams = 0;
  std::size_t unfinished_bytes = 0;  ///< of messages of which a part has come
  /// Calls that began and were taken back since `counted_from`: they may be under way in gRPC for some time.
  std::size_t taken_back = 0;
  Clock::time_point counted_from{};

  /// Counts anew every kTakenBackTime. Calls of the time before do not count.
  void count_time(Clock::time_point now) {
    if (now - counted_from < kTakenBackTime) return;
    counted_from = now;
    taken_back = 0;
  }
  static constexpr std::chrono::seconds kTakenBackTime{10};
};

/// UserCalls of each user that has a connection, or had one lately. Threads  the loop's.
class CallsOfUsers {
 public:
  std::shared_ptr<UserCalls> of(std::uint64_t account);

 private:
  std::map<std::uint64_t, std::shared_ptr<UserCalls>> users_;
};

/// Splits one direction of a connection of HTTP/2 into its frames.
class Http2Frames {
 public:
  enum class Kind : std::uint8_t { kData, kHeaders, kPriority, kReset, kSettings, kContinuation = 9 };
  static constexpr std::uint8_t kEndStream = 1;     ///< flag of kData and kHeaders
  static constexpr std::uint8_t kAcknowledges = 1;  ///< flag of kSettings
  struct Frame {
    std::uint32_t length = 0;  ///< bytes of its payload
    Kind kind = Kind::kData;
    std::uint8_t flags = 0;
    std::uint32_t stream = 0;
  };

  /// `preface`  bytes before the first frame.
  explicit Http2Frames(std::size_t preface) : skipped_(preface) {}

  /// Takes the next bytes. Calls `begin(frame)`, a Result<void>, for each frame that begins, and
  /// `payload(frame, bytes)`, likewise, for each part of its payload. Errors  theirs.
  template <class Begin, class Payload>
  Result<void> read(std::span<const std::byte> bytes, Begin begin, Payload payload);

 private:
  bool read_header(std::span<const std::byte>& bytes);

  std::size_t skipped_;  // still to be skipped
  std::array<std::uint8_t, 9> header_{};
  std::size_t header_size_ = 0;  // of header_, read
  Frame frame_;
  std::size_t left_ = 0;  // of the payload
};

/// Follows a connection of gRPC, byte by byte, and says when its client asks for too much. gRPC 1.51 bounds
/// none of this by itself. It collects a message of any length. It does not bound the number of streams until
/// the client acknowledges the settings.
/// Threads  the loop's.
class Http2Guard {
 public:
  static constexpr std::size_t kMostStreams = 256;      ///< of a connection
  static constexpr std::size_t kMostEarlyStreams = 64;  ///< until its client acknowledges the settings
  static constexpr std::size_t kMostStreamsOfUser = 1024;
  static constexpr std::size_t kMostTakenBackOfUser = 1024;  ///< calls in UserCalls::kTakenBackTime
  static constexpr std::size_t kMostUnfinishedOfUser = std::size_t{4} << 20;  ///< bytes
  static constexpr std::size_t kMostFrame = 16384;                            ///< bytes, without its header
  static constexpr std::size_t kMostHeaders = 32768;                          ///< bytes of one call's headers

  explicit Http2Guard(std::shared_ptr<UserCalls> user) : user_(std::move(user)) {}
  ~Http2Guard();
  Http2Guard(const Http2Guard&) = delete;
  Http2Guard& operator=(const Http2Guard&) = delete;

  /// Takes bytes that the client has sent, in their order.
  /// Errors  kResourceExhausted (the limit, in words), kInvalidArgument (a frame that gRPC does not take):
  ///         the connection is to be cut, and nothing more is told.
  Result<void> from_client(std::span<const std::byte> bytes);
  /// Takes bytes that the broker answers.
  void from_broker(std::span<const std::byte> bytes);

 private:
  // The message that is coming on a stream: five bytes, then as many as these say.
  struct Message {
    UserCalls::Clock::time_point counted_from;  // of the user, as the stream began
    std::size_t prefix_bytes = 0;
    std::size_t left = 0;
    std::size_t come = 0;
  };
  Result<void> begin(const Http2Frames::Frame& frame);
  Result<void> open(std::uint32_t stream);
  Result<void> take_data(std::uint32_t stream, std::span<const std::byte> bytes);
  void take(Message& message, std::span<const std::byte>& bytes);
  void close(std::uint32_t stream);
  void take_back(std::uint32_t stream);

  std::shared_ptr<UserCalls> user_;
  std::unordered_map<std::uint32_t, Message> streams_;
  Http2Frames in_{24};
  Http2Frames out_{0};
  bool acknowledged_ = false;
  std::uint32_t last_stream_ = 0;
  std::size_t headers_ = 0;  // bytes of the block that is coming
};

}  // namespace gpumem::host
