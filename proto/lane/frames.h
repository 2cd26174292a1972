#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "gpumem/result.h"
#include "proto/lane/memory_frames.h"
#include "proto/lane/region_frames.h"
#include "proto/lane/session_frames.h"

// The frames of the lane, the SOCK_SEQPACKET socket of a session: one frame a packet. docs/lane.md describes
// them for other languages. Fixed-width words in the machine's byte order, no pointers; a frame with a list
// ends after the list's last element.

namespace gpumem::lane {

/// An error without a denial.
Failed failed_with(const Error& error);

/// A body that ends with a list of `count` elements.
template <class Body>
concept Listed = requires {
  Body::kList;
};

/// The bytes of `body` that travel. Its count is within bounds.
template <class Body>
std::size_t size_of(const Body& body) {
  if constexpr (Listed<Body>) {
    const auto& list = body.*Body::kList;
    return sizeof body - (list.size() - body.count) * sizeof(list[0]);
  } else {
    return std::is_empty_v<Body> ? 0 : sizeof body;
  }
}

/// A frame to be sent.
class Outgoing {
 public:
  /// `body`  its count is within bounds.
  template <class Body>
  explicit Outgoing(const Body& body, std::uint64_t request = 0, std::uint64_t deadline = 0)
      : size_(sizeof(Header) + size_of(body)) {
    static_assert(std::is_trivially_copyable_v<Body> && sizeof(Header) + sizeof(Body) <= kMostBytes);
    const Header header{kMagic, kVersion, Body::kKind, request, deadline};
    std::memcpy(bytes_.data(), &header, sizeof header);
    if (size_ > sizeof header) std::memcpy(bytes_.data() + sizeof header, &body, size_ - sizeof header);
  }
  Outgoing(const Outgoing& other) { *this = other; }
  Outgoing& operator=(const Outgoing& other) {
    size_ = other.size_;
    std::memmove(bytes_.data(), other.bytes_.data(), size_);
    return *this;
  }
  std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, kMostBytes> bytes_;  // the first `size_` are written
  std::size_t size_;
};

/// A frame as it came. `body` is part of the packet it was parsed from.
struct Incoming {
  Header header;
  std::string_view body;
};

/// Errors  kInvalidArgument: no header; another version, and not a kind that every version has.
Result<Incoming> parse(std::string_view packet);

/// The body of `frame`, which is of the kind asked for: as long as it has to be, its texts padded, its count
/// within bounds. What the values mean is the receiver's to judge.
/// Errors  kInvalidArgument: says what is wrong.
template <class Body>
Result<Body> body_of(const Incoming& frame);

}  // namespace gpumem::lane
