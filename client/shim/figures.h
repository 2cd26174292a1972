#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gpumem::shim {

inline constexpr std::uint64_t kAccountMagic = 0x67706d61636e7431;  ///< `gpmacnt1`

/// Usage and denials of a process: the file `account.<pid>` in GPUMEM_ACCOUNT_FOLDER. The process writes each
/// word with a relaxed atomic store while it runs; the file stays when it has ended. A reader checks the size
/// and the magic, which is written last, and reads word by word.
struct AccountPage {
  std::uint64_t magic;
  std::uint64_t peak_bytes;         ///< the most that was in use at one time, on all devices together
  std::uint64_t waited_ns;          ///< spent waiting for memory that others held, all threads together
  std::uint64_t denials;            ///< requests that were answered with out of memory
  std::uint64_t last_denied_bytes;  ///< what the latest of them asked for
};

static_assert(std::is_trivially_copyable_v<AccountPage> && std::is_standard_layout_v<AccountPage>);
static_assert(sizeof(AccountPage) == 40);
static_assert(offsetof(AccountPage, peak_bytes) == 8);
static_assert(offsetof(AccountPage, waited_ns) == 16);
static_assert(offsetof(AccountPage, denials) == 24);
static_assert(offsetof(AccountPage, last_denied_bytes) == 32);

}  // namespace gpumem::shim

extern "C" {
/// Stores the process's limit on the device with this UUID, and its usage, in bytes. False if it borrows
/// nothing there; then both are as before. Exported by libcuda.so.1 for libnvidia-ml.so.1 beside it.
bool gpumem_shim_figures(const unsigned char uuid[16], std::uint64_t* total, std::uint64_t* used);
}
