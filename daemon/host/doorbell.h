#pragma once
#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Wakes a client whose page asks for memory back: a pipe whose writing end is the broker's alone. (An
/// eventfd would be one open file for both: its reader could make the writer block.)
class Doorbell {
 public:
  /// Errors  kResourceExhausted: no descriptor left.
  static Result<Doorbell> create();

  /// Adds 8 bytes to what the client can read. Never blocks: a client that does not read has been woken
  /// already.
  void ring() const;
  /// The reading end: for the Welcome, to be closed after it.
  UniqueFd take_descriptor() { return std::move(read_); }

 private:
  Doorbell() = default;

  UniqueFd write_;
  UniqueFd read_;
};

}  // namespace gpumem::host
