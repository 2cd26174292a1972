#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

// What every frame of the lane begins with, and the words that frames are made of.

namespace gpumem::lane {

/// "GML3" as little-endian bytes.
inline constexpr std::uint32_t kMagic = 0x334c'4d47;
/// Raised by every change of a frame, of a kind or of what they mean.
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kMostBytes = 4096;  ///< of a frame; a longer one ends the session
inline constexpr std::size_t kMostDescriptors = 128;
inline constexpr std::size_t kMostParts = 32;  ///< of a growth: one for each device
inline constexpr std::size_t kMostLeases = 128;
inline constexpr std::size_t kMostReturned = 500;
inline constexpr std::size_t kMostHolders = 8;
inline constexpr std::size_t kMostDescribed = 20;  ///< slices in a frame
inline constexpr std::size_t kMostClaimed = 250;   ///< things in a frame

enum class Kind : std::uint16_t {
  // From the client. Those from kCancel to kGoodbye, and kContextDone, have no answer. The others are
  // requests: one answer each.
  kHello = 1,
  kOpenSlice = 2,
  kCloseSlice = 3,
  kGrow = 4,
  kReturn = 5,
  kCharge = 6,
  kPing = 7,
  kCancel = 8,
  kAccept = 9,
  kSpent = 10,
  kGoodbye = 11,
  kExportHandle = 12,
  kImportHandle = 13,
  kReleaseImport = 14,
  kDescribe = 15,
  kExplain = 16,
  kResume = 17,
  kRevokeHandle = 18,
  kPublish = 19,
  kMapRegion = 20,
  kRemoveRegion = 21,
  kMapOrReserve = 22,
  kReleaseReservation = 23,
  kBeginJob = 24,
  kReserveForJob = 25,
  kDescribeJob = 26,
  kAnnounceContext = 27,
  kContextDone = 28,
  // From the broker.
  kWelcome = 129,
  kSliceOpened = 130,
  kWaiting = 131,
  kGranted = 132,
  kDone = 133,
  kFailed = 134,
  kHandleExported = 135,
  kImported = 136,
  kDescribed = 137,
  kExplained = 138,
  kPublished = 139,
  kRegionMapped = 140,
  kNameReserved = 141,
  kJobBegun = 142,
  kJobDescribed = 143,
};

/// Whether frames of `kind` are the same in every version. With these two sides of different versions tell
/// each other which ones they speak.
constexpr bool is_of_every_version(Kind kind) {
  return kind == Kind::kHello || kind == Kind::kResume || kind == Kind::kWelcome || kind == Kind::kFailed;
}

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  Kind kind;
  std::uint64_t request;   ///< the request's number, chosen by the client; its answer has the same
  std::uint64_t deadline;  ///< until when an answer is of use: nanoseconds of CLOCK_MONOTONIC; 0: always
};

/// At most N bytes, padded with zeros.
template <std::size_t N>
struct Text {
  std::array<char, N> bytes;

  std::string_view view() const { return {bytes.data(), ::strnlen(bytes.data(), N)}; }
  bool is_padded() const {
    for (std::size_t i = view().size(); i < N; ++i)
      if (bytes[i] != 0) return false;
    return true;
  }
  /// As much of `words` as there is room for.
  static Text of(std::string_view words) {
    Text text{};
    const std::size_t size = words.size() < N ? words.size() : N;
    std::memcpy(text.bytes.data(), words.data(), size);
    return text;
  }
};

// Their offsets are a contract with other languages.
static_assert(sizeof(Header) == 24 && offsetof(Header, version) == 4 && offsetof(Header, kind) == 6 &&
              offsetof(Header, request) == 8 && offsetof(Header, deadline) == 16);

}  // namespace gpumem::lane
