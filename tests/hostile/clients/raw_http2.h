#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/system/unique_fd.h"

namespace gpumem::test {

/// A client of HTTP/2 that is spoken by hand: it keeps to the windows that the broker grants, since gRPC cuts
/// off who does not, and to nothing else.
class RawHttp2 {
 public:
  enum class Reads { kAll, kNothing };

  /// `socket`  connected, blocking. `acknowledges`  whether it acknowledges the broker's settings.
  explicit RawHttp2(UniqueFd socket, Reads reads = Reads::kAll, bool acknowledges = true);

  /// Begins a call of gRPC; its stream. Nothing is sent of a message yet.
  std::uint32_t call(std::string_view path);
  /// Sends the beginning of a message that says that it is `length` bytes long.
  void begin_message(std::uint32_t stream, std::uint32_t length);
  /// Sends up to `most` bytes of the message, as far as the windows let it.
  std::size_t send_some(std::uint32_t stream, std::size_t most);
  /// Sends a message without any content, which ends the request.
  void send_empty(std::uint32_t stream);
  void reset(std::uint32_t stream);
  /// Takes in what the broker has sent. Waits up to `wait_ms` for the first of it.
  void take_in(int wait_ms = 0);
  /// Whether the broker has closed the connection.
  bool is_cut() const { return cut_; }

 private:
  void send(const std::string& bytes);
  void frame(std::uint8_t kind, std::uint8_t flags, std::uint32_t stream, std::string_view payload);
  void understand();

  UniqueFd socket_;
  const Reads reads_;
  const bool acknowledges_;
  bool cut_ = false;
  std::uint32_t next_stream_ = 1;
  std::string unread_;
  std::int64_t window_ = 65'535, initial_window_ = 65'535;
  std::map<std::uint32_t, std::int64_t> windows_;
};

}  // namespace gpumem::test
