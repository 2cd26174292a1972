#pragma once
#include <string_view>

#include "gpumem/denial.h"
#include "gpumem/result.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

/// The Code with gRPC's `number`; kInternal for those that gpumem does not use.
Code code_of(std::uint64_t number);

/// The error of a call that its caller has called off.
Error called_off();

/// The broker has sent what it must not send.
Error protocol_error(std::string_view what);

/// The error that `failed` reports, with its Denial if it has one.
/// `off`  whether the caller has called the request off, so that the broker's cancelling it is no surprise.
GrowError error_of(const lane::Failed& failed, bool off = false);

}  // namespace gpumem::client
