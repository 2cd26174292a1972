#include "daemon/host/state/journal.h"

#include <boost/crc.hpp>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace gpumem::host {
namespace {

using core::Checkpoint;
using Change = Checkpoint::Change;

// The place of a kind among the alternatives of Change is its number in the journal.
static_assert(
    std::is_same_v<Change, std::variant<Checkpoint::Session, Checkpoint::SessionGone, Checkpoint::Slice,
                                        Checkpoint::SliceGone, Checkpoint::Lease, Checkpoint::LeaseGone,
                                        Checkpoint::Import, Checkpoint::ImportGone, Checkpoint::Declaration,
                                        Checkpoint::Numbers, Checkpoint::Handle, Checkpoint::Region,
                                        Checkpoint::RegionGone, Checkpoint::Waiting, Checkpoint::WaitingGone,
                                        Checkpoint::Suspect, Checkpoint::Answer, Checkpoint::RegionSealed,
                                        Checkpoint::CommandJob, Checkpoint::CommandJobGone,
                                        Checkpoint::Account, Checkpoint::Spent, Checkpoint::AccountGone>>);

constexpr std::size_t kLongest = std::size_t{1} << 20;

struct RecordHeader {
  std::uint32_t size;      // bytes behind the header
  std::uint32_t checksum;  // CRC-32C of these bytes
};

std::uint32_t checksum_of(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;  // CRC-32C
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

class Encoder {
 public:
  explicit Encoder(std::string& onto) : bytes_(onto) {}
  void operator()(std::uint64_t& word) { append(&word, sizeof word); }
  void operator()(std::uint32_t& word) { wide(word); }
  void operator()(std::int64_t& word) { append(&word, sizeof word); }
  void operator()(bool& truth) { wide(truth ? 1 : 0); }
  void operator()(Bytes& bytes) { wide(bytes.count); }
  void operator()(std::string& text) {
    wide(text.size());
    append(text.data(), text.size());
  }
  template <std::size_t Size>
  void operator()(std::array<char, Size>& bytes) {
    append(bytes.data(), bytes.size());
  }
  void operator()(core::Duration& time) {
    wide(static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count()));
  }
  void operator()(core::TimePoint& time) {
    wide(static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count()));
  }
  template <class Tag>
  void operator()(Id<Tag>& id) {
    wide(id.value);
  }
  template <class Value>
  void operator()(std::vector<Value>& values) {
    wide(values.size());
    for (Value& value : values) (*this)(value);
  }
  void operator()(std::optional<core::Owner>& owner) {
    wide(owner ? 1 : 0);
    if (!owner) return;
    (*this)(owner->uid);
    (*this)(owner->gids);
  }
  void operator()(core::ByteTime& sum) {
    wide(sum.high());
    wide(sum.low());
  }

 private:
  void wide(std::uint64_t word) { append(&word, sizeof word); }
  void append(const void* from, std::size_t size) { bytes_.append(static_cast<const char*>(from), size); }
  std::string& bytes_;
};

// After the first word that is not there, or is impossible, it reads zeros.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  void operator()(std::uint64_t& word) { word = wide(); }
  void operator()(std::uint32_t& word) {
    const std::uint64_t read = wide();
    good_ = good_ && read <= std::numeric_limits<std::uint32_t>::max();
    word = static_cast<std::uint32_t>(read);
  }
  void operator()(std::int64_t& word) { word = static_cast<std::int64_t>(wide()); }
  void operator()(bool& truth) {
    const std::uint64_t read = wide();
    good_ = good_ && read <= 1;
    truth = read == 1;
  }
  void operator()(Bytes& bytes) { bytes.count = wide(); }
  void operator()(std::string& text) {
    const std::uint64_t size = wide();
    if (size > bytes_.size()) good_ = false;
    if (!good_) return;
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
  }
  template <std::size_t Size>
  void operator()(std::array<char, Size>& bytes) {
    if (bytes_.size() < Size) good_ = false;
    if (!good_) return;
    std::memcpy(bytes.data(), bytes_.data(), Size);
    bytes_.remove_prefix(Size);
  }
  void operator()(core::Duration& time) {
    time = std::chrono::nanoseconds(static_cast<std::int64_t>(wide()));
  }
  void operator()(core::TimePoint& time) {
    time = core::TimePoint(std::chrono::nanoseconds(static_cast<std::int64_t>(wide())));
  }
  template <class Tag>
  void operator()(Id<Tag>& id) {
    id.value = wide();
  }
  template <class Value>
  void operator()(std::vector<Value>& values) {
    const std::uint64_t count = wide();
    if (count > bytes_.size() / sizeof(std::uint64_t)) good_ = false;
    for (std::uint64_t i = 0; good_ && i < count; ++i) (*this)(values.emplace_back());
  }
  void operator()(std::optional<core::Owner>& owner) {
    bool is_there = false;
    (*this)(is_there);
    if (!is_there) return;
    (*this)(owner.emplace().uid);
    (*this)(owner->gids);
  }
  void operator()(core::ByteTime& sum) {
    const std::uint64_t high = wide();
    sum = core::ByteTime(high, wide());
  }
  /// Everything was there, and nothing else.
  bool is_done() const { return good_ && bytes_.empty(); }

 private:
  std::uint64_t wide() {
    std::uint64_t word = 0;
    if (bytes_.size() < sizeof word) good_ = false;
    if (!good_) return 0;
    std::memcpy(&word, bytes_.data(), sizeof word);
    bytes_.remove_prefix(sizeof word);
    return word;
  }
  std::string_view bytes_;
  bool good_ = true;
};

// The words of each kind, in the order in which they are written and read.
template <class Coder, class... Words>
void code_all(Coder& coder, Words&... words) {
  (coder(words), ...);
}
template <class Coder, class Kind>
requires(sizeof(Kind) == sizeof(Kind::id))  // the id is all
    void code(Coder& coder, Kind& one) {
  coder(one.id);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Session& one) {
  code_all(coder, one.id, one.peer.pid, one.peer.uid, one.peer.can_be_ended, one.peer.maps, one.peer.gids,
           one.peer.command, one.peer.started, one.label, one.tenant, one.since, one.ended, one.peer.pod,
           one.job, one.peer.owner);
}
template <class Coder>
void code(Coder& coder, Checkpoint::CommandJob& one) {
  code_all(coder, one.id, one.owner, one.account, one.label, one.since, one.limits, one.reservations,
           one.waited, one.denied, one.peaks);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Slice& one) {
  code_all(coder, one.id, one.session, one.device, one.limit, one.label, one.is_private);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Lease& one) {
  code_all(coder, one.id, one.grant, one.session, one.slice, one.device, one.size, one.returned, one.fabric);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Import& one) {
  code_all(coder, one.id, one.session, one.leases);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Suspect& one) {
  code_all(coder, one.session, one.leases);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Declaration& one) {
  code_all(coder, one.session, one.device, one.bytes);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Numbers& one) {
  code_all(coder, one.session, one.slice, one.lease, one.grant, one.import);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Handle& one) {
  code_all(coder, one.name, one.session, one.device, one.leases, one.offset, one.bytes, one.expires,
           one.uses);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Region& one) {
  code_all(coder, one.id, one.name, one.device, one.leases, one.offset, one.bytes, one.layout, one.digest,
           one.sharing, one.readers, one.since, one.expires, one.kept, one.linger, one.left);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Answer& one) {
  code_all(coder, one.session, one.request, one.value);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Account& one) {
  code_all(coder, one.tenant, one.device, one.began, one.until);
  for (core::ByteTime& sum : one.sums) coder(sum);
  for (Bytes& level : one.levels) coder(level);
}
template <class Coder>
void code(Coder& coder, Checkpoint::AccountGone& one) {
  coder(one.tenant);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Spent& one) {
  code_all(coder, one.session, one.job, one.sum, one.until, one.peak, one.waited, one.denied);
}
template <class Coder>
void code(Coder& coder, Checkpoint::Waiting& one) {
  code_all(coder, one.id, one.session, one.asked, one.deadline, one.slices, one.min_bytes);
}
template <class Coder>
void code(Coder& coder, Checkpoint::WaitingGone& one) {
  code_all(coder, one.session, one.id);
}

// An empty change of the kind with this number; none: it is not known.
template <std::size_t... Kinds>
std::optional<Change> make(std::uint64_t kind, std::index_sequence<Kinds...>) {
  std::optional<Change> change;
  ((kind == Kinds ? void(change = std::variant_alternative_t<Kinds, Change>{}) : void()), ...);
  return change;
}

}  // namespace

void encode(const Change& change, std::string& onto) {
  const std::size_t start = onto.size();
  onto.resize(start + sizeof(RecordHeader));
  Encoder encoder(onto);
  std::uint64_t kind = change.index();
  encoder(kind);
  std::visit([&](auto one) { code(encoder, one); }, change);
  const std::string_view words = std::string_view(onto).substr(start + sizeof(RecordHeader));
  const RecordHeader header{static_cast<std::uint32_t>(words.size()), checksum_of(words)};
  std::memcpy(onto.data() + start, &header, sizeof header);
}

Result<Change> decode(std::string_view& bytes) {
  RecordHeader header{};
  if (bytes.size() < sizeof header) return Error{Code::kUnavailable, "the last record is not whole"};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.size > kLongest) return Error{Code::kInvalidArgument, "a record is too long to be one"};
  if (bytes.size() - sizeof header < header.size)
    return Error{Code::kUnavailable, "the last record is not whole"};
  const std::string_view words = bytes.substr(sizeof header, header.size);
  if (checksum_of(words) != header.checksum)
    return Error{Code::kInvalidArgument, "a record's checksum is wrong"};
  Decoder decoder(words);
  std::uint64_t kind = 0;
  decoder(kind);
  auto change = make(kind, std::make_index_sequence<std::variant_size_v<Change>>());
  if (!change)
    return Error{Code::kFailedPrecondition,
                 "it has a record of kind " + std::to_string(kind) + ", which this version does not know"};
  std::visit([&](auto& one) { code(decoder, one); }, *change);
  if (!decoder.is_done()) return Error{Code::kInvalidArgument, "a record's words do not fit its kind"};
  bytes.remove_prefix(sizeof header + header.size);
  return *std::move(change);
}

}  // namespace gpumem::host
