// Records that a broker may find in its journal, with right checksums and wrong ones.
#include <boost/crc.hpp>
#include <string>
#include <variant>

#include "daemon/host/state/journal.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

using core::Checkpoint;

constexpr std::size_t kKinds = std::variant_size_v<Checkpoint::Change>;

// A record of the words, however wrong those are.
std::string sealed(std::string_view words) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(words.data(), words.size());
  const std::uint32_t header[2] = {static_cast<std::uint32_t>(words.size()), crc.checksum()};
  return std::string(reinterpret_cast<const char*>(header), sizeof header).append(words);
}

std::string journal_of(Input& input) {
  std::string journal;
  while (!input.empty()) {
    std::string words(sizeof(std::uint64_t), '\0');
    words[0] = static_cast<char>(input.below(kKinds));
    words.append(input.text(input.byte()));
    journal += input.one_in(16) ? words : sealed(words);
  }
  return journal;
}

void read(std::string_view journal) {
  Checkpoint checkpoint;
  while (!journal.empty()) {
    const auto change = host::decode(journal);
    if (!change) break;
    std::string written;
    host::encode(*change, written);
    std::string_view again = written;
    const auto same = host::decode(again);
    require(same && *same == *change && again.empty(), "what was written is read");
    checkpoint.apply(*change);
  }
  Checkpoint copy;
  for (const Checkpoint::Change& change : checkpoint.changes()) copy.apply(change);
  require(copy == checkpoint, "a checkpoint's changes make it");
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::Input input({reinterpret_cast<const char*>(data), size});
  gpumem::fuzz::read(gpumem::fuzz::journal_of(input));
  return 0;
}
