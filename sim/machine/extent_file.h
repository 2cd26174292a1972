#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/system/unique_fd.h"

namespace gpumem::sim {

/// One extent of the machine: a slot of the table, and which of the slot's successive extents. None comes
/// twice.
struct SlotRef {
  std::uint32_t index = 0;
  std::uint64_t generation = 0;

  bool operator==(const SlotRef&) const = default;
};

/// The name of the extent's file in the machine's data folder.
std::string extent_name(SlotRef slot);

/// The extent whose file has this name, or nothing if it is no extent's.
std::optional<SlotRef> parse_extent_name(std::string_view name);

/// Creates the empty file `path`, writable for everyone, and locks it: the lock lasts until the last
/// reference to the returned open file description, in any process, is gone. Invalid, with errno set, on
/// failure.
UniqueFd create_extent_file(const std::string& path);

/// Opens the extent's file by name, which keeps the extent alive like its creator's descriptor does, as long
/// as a reference to the new open file description is left. Invalid if it is no more. Only while nobody can
/// bury it.
UniqueFd open_extent_file(const std::string& path);

/// Removes `path` if no reference to its creating open file description, or to one of open_extent_file, is
/// left. True if it is gone, now or already; false if it lives or cannot be asked.
bool bury_if_dead(const std::string& path);

/// Another descriptor of the same open file description, closed on exec. Invalid, with errno set, on failure.
UniqueFd duplicate(int fd);

/// The extent whose memory `fd` refers to, as far as the descriptor tells; the inode must still be compared.
std::optional<SlotRef> extent_of(int fd);

}  // namespace gpumem::sim
