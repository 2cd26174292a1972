#include "tests/hostile/clients/raw_http2.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "tests/hostile/clients/silent_clients.h"

namespace gpumem::test {
namespace {

enum Kind : std::uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kWindow = 8 };
constexpr std::size_t kHeader = 9;

std::string big_endian(std::uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::uint32_t number(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char one : bytes) value = value << 8 | static_cast<unsigned char>(one);
  return value;
}

std::string literal(std::string_view text) { return static_cast<char>(text.size()) + std::string(text); }

}  // namespace

RawHttp2::RawHttp2(UniqueFd socket, Reads reads, bool acknowledges)
    : socket_(std::move(socket)), reads_(reads), acknowledges_(acknowledges) {
  const timeval patience{.tv_sec = 0, .tv_usec = 200'000};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  begin_http2(socket_.get());
  if (acknowledges_) frame(kSettings, 1, 0, {});
}

// In the words of HPACK: indexed where its table has the whole, else literal and not indexed.
std::uint32_t RawHttp2::call(std::string_view path) {
  const std::string headers = "\x83\x86\x04" + literal(path) + "\x01" + literal("broker") + "\x0f\x10" +
                              literal("application/grpc") + std::string(1, '\0') + literal("te") +
                              literal("trailers");
  const std::uint32_t stream = next_stream_;
  next_stream_ += 2;
  windows_[stream] = initial_window_;
  frame(kHeaders, 4, stream, headers);
  return stream;
}

void RawHttp2::begin_message(std::uint32_t stream, std::uint32_t length) {
  window_ -= 5;
  windows_[stream] -= 5;
  frame(kData, 0, stream, std::string(1, '\0') + big_endian(length, 4));
}

std::size_t RawHttp2::send_some(std::uint32_t stream, std::size_t most) {
  const std::int64_t room = std::min({window_, windows_[stream], std::int64_t{16'384}});
  const std::size_t bytes = std::min(most, static_cast<std::size_t>(std::max<std::int64_t>(room, 0)));
  if (bytes == 0 || cut_) return 0;
  window_ -= static_cast<std::int64_t>(bytes);
  windows_[stream] -= static_cast<std::int64_t>(bytes);
  frame(kData, 0, stream, std::string(bytes, 'x'));
  return bytes;
}

void RawHttp2::send_empty(std::uint32_t stream) {
  window_ -= 5;
  frame(kData, 1, stream, std::string(5, '\0'));
}

void RawHttp2::reset(std::uint32_t stream) {
  windows_.erase(stream);
  frame(kReset, 0, stream, big_endian(8, 4));
}

void RawHttp2::take_in(int wait_ms) {
  std::array<char, 65'536> bytes;
  pollfd waiting{socket_.get(), POLLIN, 0};
  while (!cut_ && reads_ == Reads::kAll && ::poll(&waiting, 1, wait_ms) > 0) {
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count <= 0) {
      cut_ = true;
      return;
    }
    unread_.append(bytes.data(), static_cast<std::size_t>(count));
    understand();
    wait_ms = 0;
  }
}

void RawHttp2::understand() {
  std::size_t at = 0;
  while (unread_.size() - at >= kHeader) {
    const std::string_view rest = std::string_view(unread_).substr(at);
    const std::size_t length = number(rest.substr(0, 3));
    if (rest.size() < kHeader + length) break;
    const std::uint32_t stream = number(rest.substr(5, 4));
    const std::string_view payload = rest.substr(kHeader, length);
    if (rest[3] == kWindow) (stream == 0 ? window_ : windows_[stream]) += number(payload);
    for (std::size_t i = 0; rest[3] == kSettings && i + 6 <= length; i += 6)
      if (number(payload.substr(i, 2)) == 4) initial_window_ = number(payload.substr(i + 2, 4));
    at += kHeader + length;
  }
  unread_.erase(0, at);
}

void RawHttp2::send(const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size() && !cut_;) {
    const ssize_t count = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) cut_ = true;  // or nobody reads there any more, which is the same here
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
}

void RawHttp2::frame(std::uint8_t kind, std::uint8_t flags, std::uint32_t stream, std::string_view payload) {
  if (cut_) return;
  send(big_endian(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(kind) +
       static_cast<char>(flags) + big_endian(stream, 4) + std::string(payload));
}

}  // namespace gpumem::test
