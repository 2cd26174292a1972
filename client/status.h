#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "gpumem/denial.h"
#include "gpumem/result.h"

namespace grpc {
class Status;
}  // namespace grpc

namespace gpumem::v1 {
class Denial;
}

namespace gpumem::client {

/// The Code with gRPC's `number`; kInternal for those that gpumem does not use.
Code code_of(int number);

/// The error of a call that its caller has cancelled.
Error called_off();

/// The same Denial in the library's own types.
Denial to_denial(const v1::Denial& message);

/// The Denial among the details of a google.rpc.Status in its bytes, or nothing if there is none.
std::optional<Denial> denial_in(std::string_view details);

/// Converts the failed `status` of a call to the broker at `socket` into an error, with its Denial if it has
/// one.
GrowError call_error(const grpc::Status& status, std::string_view socket);

}  // namespace gpumem::client
