#pragma once
#include <string>
#include <string_view>

#include "daemon/core/checkpoint.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// One change as the journal has it: its size, its checksum, its kind, its words. docs/journal.md.
std::string encode(const core::Checkpoint::Change& change);

/// The record at the beginning of `bytes`, which loses it.
/// Errors  kUnavailable: not all of it is there; kInvalidArgument: it is damaged;
///         kFailedPrecondition: another version has written it, its kind is not known.
Result<core::Checkpoint::Change> decode(std::string_view& bytes);

}  // namespace gpumem::host
