#pragma once
#include <cstdint>

#include "daemon/core/denial.h"

// How a denial is counted on every transport.

namespace gpumem::api {

/// As gpumem.v1.Denial.Reason.
std::uint64_t reason_number(core::Denial::Reason reason);

/// Rounded up; never below zero: what is left of a time that has passed is nothing.
std::uint64_t milliseconds(core::Duration duration);

}  // namespace gpumem::api
