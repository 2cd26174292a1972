#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "gpumem/denial.h"
#include "gpumem/result.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace gpumem::v1 {
class Denial;
}

namespace gpumem::client {

/// The Code with gRPC's `number`; kInternal for those that gpumem does not use.
Code code_of(int number);

/// The same Denial in the library's own types.
Denial to_denial(const v1::Denial& message);

/// The Denial in a trailer's bytes, or nothing if they are none.
std::optional<Denial> parse_denial(std::string_view bytes);

/// What the failed `status` of a call to the broker at `socket` means, with the Denial that came with it.
GrowError call_error(const grpc::Status& status, const grpc::ClientContext& context, std::string_view socket);

}  // namespace gpumem::client
