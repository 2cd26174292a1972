#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "gpumem/bytes.h"

namespace gpumem {

/// A request by the broker that this session give memory back: others have a better claim to it, or its
/// tenant is in debt.
struct Pressure {
  std::string device;  ///< UUID
  Bytes bytes;         ///< how much to give back
  /// After this, the device's escalation applies.
  std::chrono::steady_clock::time_point deadline;
};

/// Gives memory of `Pressure::device` back: by Slice::release or shrink, by Slice::set_in_use of slices with
/// SliceOptions::trim_on_pressure, or by freeing memory past the broker and then calling Session::charge.
/// Returns how much it expects to have given back. This is informational: only what the broker receives
/// counts. An exception is printed on standard error, once for each handler, and counts as nothing given
/// back.
/// Threads  the library's thread, with all signals blocked. One call at a time, with no lock held. Until it
///          returns, the process's other sessions and its allocators are not asked for memory.
/// The handler may call the session and its slices, and end them.
using PressureHandler = std::function<Bytes(const Pressure&)>;

}  // namespace gpumem
