#pragma once
#include <filesystem>
#include <span>
#include <string_view>

#include "base/system/unique_fd.h"

namespace gpumem::test {

/// The client's end of a lane, as a socket: nothing is checked before it is sent.
/// A connection that cannot be made fails the test.
class RawLane {
 public:
  explicit RawLane(const std::filesystem::path& runtime_folder);

  int socket() const { return socket_.get(); }
  /// False if the broker has closed the lane already.
  bool send(std::string_view bytes, std::span<const int> descriptors = {});
  /// Whether the broker closes the lane, whatever it says before. What comes with it is dropped.
  bool is_closed_by_broker();
  void close() { socket_.reset(); }

 private:
  UniqueFd socket_;
};

}  // namespace gpumem::test
