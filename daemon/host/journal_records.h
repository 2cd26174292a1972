#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "daemon/core/checkpoint.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// One change as the journal has it: its size, its checksum, its kind, its words. docs/journal.md.
std::string encode(const core::Checkpoint::Change& change);

/// The record at the beginning of `bytes`, which loses it. None: it is of a kind that a later version has.
/// Errors  kUnavailable: not all of it is there; kInvalidArgument: it is damaged.
Result<std::optional<core::Checkpoint::Change>> decode(std::string_view& bytes);

}  // namespace gpumem::host
