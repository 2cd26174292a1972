#pragma once
#include <optional>
#include <string>

#include "daemon/kubernetes/json_fields.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

inline constexpr const char* kParametersVersion = "gpumem.dev/v1alpha1";
inline constexpr const char* kParametersKind = "SliceParameters";
/// The limit of who may borrow all that is free.
inline constexpr Bytes kUnlimited{~std::uint64_t{0}};

/// What an opaque configuration of this driver says.
struct Parameters {
  std::optional<Bytes> limit;  ///< nothing: as much as is guaranteed
};

/// Reads `{"apiVersion": "gpumem.dev/v1alpha1", "kind": "SliceParameters", "limit": "16Gi"}`; the limit may
/// be "unlimited". Errors  kInvalidArgument: another version or kind, an unknown field, a limit that is none.
Result<Parameters> read_parameters(const Json& parameters);

/// The parameters for `request` in `configs`, the allocation's devices.config: what comes later goes before,
/// so a claim's before its class's. Errors  kInvalidArgument: as above.
Result<Parameters> parameters_of(const Json::array_t& configs, const std::string& driver,
                                 const std::string& request);

}  // namespace gpumem::kubernetes
