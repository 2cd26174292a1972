#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/packet.h"
#include "base/unique_fd.h"
#include "gpumem/v1/lane.pb.h"

namespace gpumem::test {

/// The client's end of a lane, spoken by hand: nothing is checked before it is sent.
/// Failures that no test wants (no connection, no answer) fail the test.
class RawLane {
 public:
  explicit RawLane(const std::filesystem::path& runtime_folder);

  int socket() const { return socket_.get(); }
  /// False if the broker has closed the lane already.
  bool send(std::string_view bytes, std::span<const int> descriptors = {});
  bool send(const v1::ToBroker& message, std::span<const int> descriptors = {});
  bool accept(std::uint64_t grant);
  bool goodbye();

  /// The next message; an unset one if the broker closes instead.
  v1::ToClient receive();
  /// Says Hello, and keeps what the Welcome brings.
  v1::Welcome greet(const std::string& label = "raw");
  /// Says Hello as a control connection; the token.
  std::string greet_control();
  /// Whether the broker closes the lane, whatever it says before. What comes with it is dropped.
  bool is_closed_by_broker();
  void close() { socket_.reset(); }

  /// Descriptors that came along: first the two pages and the bell, then the extents in the order of their
  /// offers.
  std::vector<UniqueFd>& descriptors() { return descriptors_; }

 private:
  UniqueFd socket_;
  std::vector<UniqueFd> descriptors_;
};

/// A Hello with the right protocol.
v1::ToBroker hello(const std::string& label = "raw");

}  // namespace gpumem::test
