#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "gpumem/bytes.h"

namespace gpumem {

/// The broker asks this session for memory: others have a right to it, or its tenant is in debt.
struct Pressure {
  std::string device;  ///< UUID
  Bytes bytes;         ///< what is asked for
  /// What has not come back by then may be taken by force, by the device's escalation.
  std::chrono::steady_clock::time_point deadline;
};

/// Gives memory of `Pressure::device` back, by Slice::release or shrink, by lowering what is in use of slices
/// with SliceOptions::trim_on_pressure, or past the broker (and then Session::charge).
/// Answers how much it expects to have given: for its own records, since only what the broker has seen come
/// back counts. An exception is said on standard error, once a session, and counts as nothing given.
/// Threads  one of the library's own, with all signals blocked; one call at a time, with no lock held: it
///          may call the session and its slices, and end them.
using PressureHandler = std::function<Bytes(const Pressure&)>;

}  // namespace gpumem
