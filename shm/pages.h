#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "gpumem/result.h"

// The two pages that a session shares with the broker. docs/shm-layout.md describes them for other
// languages. Fixed-width words, no pointers; magic, version and size come first and never move.

namespace gpumem {

inline constexpr std::size_t kSharedPageBytes = 4096;
inline constexpr std::size_t kMaxDevices = 32;
inline constexpr std::uint32_t kPageVersion = 2;
inline constexpr std::uint64_t kBrokerPageMagic = 0x314b'5242'4d45'4d47;  // "GMEMBRK1" as little-endian bytes
inline constexpr std::uint64_t kClientPageMagic = 0x314e'4c43'4d45'4d47;  // "GMEMCLN1"

struct PageHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t size;  ///< of the whole page, in bytes
};

/// The broker's figures of one device, from the side of the session's job if it is in one, else of its
/// tenant. Bytes.
struct DeviceFigures {
  std::uint64_t pool;
  std::uint64_t free;  ///< in the pool and charged to nobody; at most a moment old
  std::uint64_t guarantee;
  std::uint64_t limit;
  std::uint64_t charged;            ///< to the tenant or job, all sessions together
  std::uint64_t available;          ///< what the tenant or job could be granted without waiting
  std::uint64_t pressure;           ///< bytes that the broker asks the session to give back; 0: none
  std::uint64_t pressure_deadline;  ///< until when: nanoseconds of CLOCK_MONOTONIC; 0 without pressure
  std::uint64_t held;               ///< of `charged`: lent to this session
  std::uint64_t tenant_limit;       ///< of the tenant, whether the session is in a job or not
  std::uint64_t tenant_charged;  ///< likewise, without what the session's job has reserved and does not use
};

struct BrokerFigures {
  std::uint64_t session;
  std::uint64_t generation;  ///< counts configurations; another number: guarantees or limits may have changed
  std::uint64_t device_count;
  std::array<DeviceFigures, kMaxDevices> devices;
};

/// Written by the broker only; sealed, so that a client can only map it for reading.
struct BrokerPage {
  PageHeader header;
  std::uint64_t sequence;  ///< seqlock over `figures`
  BrokerFigures figures;
};

/// What a session says of itself on one device. Bytes.
struct ClientFigures {
  std::uint64_t reserved;   ///< address space set aside
  std::uint64_t committed;  ///< backed by memory
  std::uint64_t in_use;     ///< of `committed`: holds something
  std::uint64_t peak;       ///< highest `in_use` so far
};

/// Written by the client, word by word, without a lock: figures for people, never for decisions.
struct ClientPage {
  PageHeader header;
  std::array<ClientFigures, kMaxDevices> devices;
};

static_assert(std::is_trivially_copyable_v<BrokerPage> && std::is_trivially_copyable_v<ClientPage>);
static_assert(offsetof(PageHeader, magic) == 0 && offsetof(PageHeader, version) == 8 &&
              offsetof(PageHeader, size) == 12 && sizeof(PageHeader) == 16);
static_assert(offsetof(DeviceFigures, pool) == 0 && offsetof(DeviceFigures, free) == 8 &&
              offsetof(DeviceFigures, guarantee) == 16 && offsetof(DeviceFigures, limit) == 24 &&
              offsetof(DeviceFigures, charged) == 32 && offsetof(DeviceFigures, available) == 40 &&
              offsetof(DeviceFigures, pressure) == 48 && offsetof(DeviceFigures, pressure_deadline) == 56 &&
              offsetof(DeviceFigures, held) == 64 && offsetof(DeviceFigures, tenant_limit) == 72 &&
              offsetof(DeviceFigures, tenant_charged) == 80 && sizeof(DeviceFigures) == 88);
static_assert(offsetof(BrokerFigures, session) == 0 && offsetof(BrokerFigures, generation) == 8 &&
              offsetof(BrokerFigures, device_count) == 16 && offsetof(BrokerFigures, devices) == 24);
static_assert(offsetof(BrokerPage, header) == 0 && offsetof(BrokerPage, sequence) == 16 &&
              offsetof(BrokerPage, figures) == 24 && sizeof(BrokerPage) <= kSharedPageBytes);
static_assert(offsetof(ClientFigures, reserved) == 0 && offsetof(ClientFigures, committed) == 8 &&
              offsetof(ClientFigures, in_use) == 16 && offsetof(ClientFigures, peak) == 24 &&
              sizeof(ClientFigures) == 32);
static_assert(offsetof(ClientPage, header) == 0 && offsetof(ClientPage, devices) == 16 &&
              sizeof(ClientPage) <= kSharedPageBytes);

/// Writes the header, and zeroes the rest, of a page that nobody reads yet.
void initialize(BrokerPage& page);
void initialize(ClientPage& page);

/// Checks that a mapped page is one of this version.
/// Errors  kFailedPrecondition: another magic, version or size.
Result<void> validate(const BrokerPage& page);

/// A consistent and plausible copy of the broker's figures.
/// Errors  kUnavailable: the broker stopped in the middle of an update; kInternal: impossible figures.
Result<BrokerFigures> read_figures(const BrokerPage& page);

/// The figures of device `index` as the client says them, if they can be true at all:
/// in_use <= peak, in_use <= committed <= reserved, committed <= `charged`. Otherwise nothing.
/// The client may change the page at any instant: every word is read once.
std::optional<ClientFigures> read_figures(const ClientPage& page, std::size_t index, std::uint64_t charged);

/// Stores the client's own figures, word by word.
void write_figures(ClientPage& page, std::size_t index, const ClientFigures& figures);

}  // namespace gpumem
