#pragma once
#include <optional>
#include <string>
#include <vector>

#include "daemon/kubernetes/http/api_values.h"
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

/// A ResourceClaim as the kubelet names it.
struct ClaimReference {
  std::string space;  ///< its namespace
  std::string name;
  std::string uid;

  std::string text() const { return space + "/" + name; }
};

struct PodReference {
  std::string uid;
  std::string name;
  bool operator==(const PodReference&) const = default;
};

/// The part of one device of this driver that the scheduler has allocated to a claim.
struct Share {
  std::string request;  ///< of the claim; `main/sub` for an alternative
  std::string pool;
  std::string device;    ///< its name in the ResourceSlice
  std::string share_id;  ///< empty: the server has none
  Bytes guarantee;
  Bytes limit;  ///< at least the guarantee; the largest number: unlimited
  bool operator==(const Share&) const = default;
};

/// What a claim comes to on this node.
struct Allocation {
  std::vector<Share> shares;       ///< at least one
  std::vector<PodReference> pods;  ///< at least one
  bool standalone = false;         ///< not made for one pod: others may join
};

/// Reads the allocation of `claim`, a ResourceClaim of resource.k8s.io/v1, for `driver`. Results and
/// parameters of other drivers are passed over. `asked` is what the kubelet wants prepared.
/// Errors  kNotFound: another claim with that name. kFailedPrecondition: not allocated, not reserved for a
///         pod, nothing of this driver, amounts missing. kInvalidArgument: wrong parameters. All are fit for
///         the pod's event.
Result<Allocation> read_claim(const Json& claim, const ClaimReference& asked, const std::string& driver);

}  // namespace gpumem::kubernetes
