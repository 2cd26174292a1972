#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/bytes.h"
#include "proto/lane/frames.h"
#include "tests/support/lanes/raw_lane.h"

namespace gpumem::test {

/// A session by frames, spoken by hand: nothing is checked before it is sent.
/// Failures that no test wants (no connection, no answer) fail the test.
class FrameLane {
 public:
  /// An answer, or nothing where the broker closed the lane.
  struct Answer {
    lane::Header header{};
    std::string body;
    std::vector<UniqueFd> descriptors;

    /// The body, which the test expects to be one.
    template <class Body>
    Body as() const {
      auto read = lane::body_of<Body>({header, body});
      EXPECT_EQ(read ? "" : read.error().message, "") << "kind " << static_cast<int>(header.kind);
      return read ? *read : Body{};
    }
    bool is(lane::Kind kind) const { return header.kind == kind; }
  };

  explicit FrameLane(const std::filesystem::path& runtime_folder) : lane_(runtime_folder) {}

  /// Sends the body as a request with the next number, which it returns.
  template <class Body>
  std::uint64_t send(const Body& body, std::uint64_t deadline = 0) {
    EXPECT_TRUE(lane_.send(lane::Outgoing(body, ++last_, deadline).bytes()));
    return last_;
  }
  Answer receive();
  /// Sends, and receives the answer.
  template <class Body>
  Answer ask(const Body& body) {
    const std::uint64_t number = send(body);
    Answer answer = receive();
    EXPECT_EQ(answer.header.request, number);
    return answer;
  }

  /// Says Hello, and keeps the descriptors that the Welcome brings.
  lane::Welcome greet(const std::string& label = "frames");
  /// Says Hello, and keeps those descriptors. False: the broker refuses.
  bool is_welcomed();
  /// The two pages and the doorbell.
  std::vector<UniqueFd>& descriptors() { return descriptors_; }
  /// A slice of the first device.
  std::uint64_t open_slice(Bytes limit = {});
  lane::Grow growth(std::uint64_t slice, Bytes bytes, std::chrono::milliseconds wait = {}) const;
  /// Grows by one frame's worth, without accepting. The descriptors are kept by the answer.
  Answer grow(std::uint64_t slice, Bytes bytes) { return ask(growth(slice, bytes)); }
  /// Says Goodbye. False if the broker has closed the lane already.
  bool goodbye() { return lane_.send(lane::Outgoing(lane::Goodbye{}).bytes()); }
  RawLane& raw() { return lane_; }

 private:
  RawLane lane_;
  std::vector<UniqueFd> descriptors_;
  std::uint64_t last_ = 0;
};

/// A Hello with the right version.
lane::Hello hello(std::string_view label = "frames");

}  // namespace gpumem::test
