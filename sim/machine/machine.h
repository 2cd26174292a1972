#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::sim {

inline constexpr std::size_t kMaxDevices = 16;
inline constexpr Bytes kGranularity = mebibytes(2);

using Uuid = std::array<std::uint8_t, 16>;

/// One simulated machine: what its folder's `machine` file says.
struct Machine {
  std::string spec;            ///< as it was given, for example `2x24GiB`
  bool fabric = false;         ///< its devices offer fabric handles: the spec ends with `+fabric`
  std::string id;              ///< 16 hexadecimal digits, new with every creation
  std::uint64_t seed = 0;      ///< of the UUIDs; the same for every machine of this spec in this folder
  std::vector<Bytes> devices;  ///< total memory of each

  /// Where the memory lies, a folder in /dev/shm that all processes of the machine may write to.
  std::filesystem::path data_folder() const;
  /// The UUID of device `index`; the same again when the machine is removed and made anew.
  Uuid device_uuid(std::size_t index) const;
};

/// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
std::string to_string(const Uuid& uuid);

/// Reads the memory of each device from `2x24GiB` or `1x8GiB,1x16GiB`; the count may be left out, and
/// `+fabric` may follow.
/// Errors  kInvalidArgument: not of that form; no or over 16 devices; not a multiple of 2 MiB.
Result<std::vector<Bytes>> parse_spec(std::string_view spec);

/// Makes `folder` a machine that programs reach by `LD_LIBRARY_PATH=folder`. Does nothing if it already is
/// one of the same spec; replaces it, and says so on stderr, if the spec differs. Running programs keep the
/// old one. `library_folder`  holds the built libcuda.so.1 and libnvidia-ml.so.1; symlinks point there.
/// Errors  kInvalidArgument (spec); kNotFound (libraries); what the file system says.
Result<void> create_machine(const std::filesystem::path& folder, std::string_view spec,
                            const std::filesystem::path& library_folder);

/// Takes the machine away: its files in `folder`, the folder if that leaves it empty, and its memory's names.
/// Running programs keep what they have mapped. Errors  kNotFound: no machine there.
Result<void> remove_machine(const std::filesystem::path& folder);

/// Reads the machine in `folder`. Errors  kNotFound: none there; kInvalidArgument: its file is damaged.
Result<Machine> load_machine(const std::filesystem::path& folder);

/// The folder of the simulated libraries that belong to this program: its own, one beside it (build tree), or
/// the installed one. Errors  kNotFound: neither holds them.
Result<std::filesystem::path> find_libraries();

/// The machine that this library serves: the one in $GPUMEM_SIM_MACHINE if that is set, else the one in the
/// folder that the library was loaded from. Errors  kNotFound: neither is a machine; the message says how to
/// make one. kInvalidArgument: damaged.
Result<Machine> locate_machine();

}  // namespace gpumem::sim
