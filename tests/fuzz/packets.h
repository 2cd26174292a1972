#pragma once
#include <string>

#include "proto/lane/frames.h"
#include "tests/fuzz/input.h"

namespace gpumem::fuzz {

/// Bytes that are mostly no frame: as `input` says, up to one byte more than a frame may have.
inline std::string garbage(Input& input) {
  constexpr std::size_t kLengths[] = {0, 1, 4, 23, 24, 40, 152, 255, lane::kMostBytes, lane::kMostBytes + 1};
  std::string packet(kLengths[input.below(std::size(kLengths))], '\0');
  const std::string_view text = input.text(input.byte());
  packet.replace(0, std::min(packet.size(), text.size()), text.substr(0, packet.size()));
  return packet;
}

/// `packet`, or, one time in eight, the same with something wrong in it: cut, lengthened, or a byte changed.
inline std::string maybe_broken(Input& input, std::string packet) {
  if (!input.one_in(8)) return packet;
  const std::size_t place = (input.byte() * 256U + input.byte()) % (packet.size() + 1);
  switch (input.below(3)) {
    case 0: packet.resize(place); break;
    case 1: packet.append(input.text(input.byte())); break;
    default:
      if (place < packet.size()) packet[place] = static_cast<char>(input.byte());
  }
  return packet;
}

/// A text of a frame, mostly printable and padded.
template <class Text>
Text text(Input& input) {
  return Text::of(input.text(input.one_in(4) ? input.byte() : 0));
}

}  // namespace gpumem::fuzz
