#include "daemon/kubernetes/claims/claim.h"

#include <algorithm>

#include "daemon/kubernetes/http/api_values.h"

namespace gpumem::kubernetes {
namespace {

Error wrong_parameters(const std::string& what) {
  return {Code::kInvalidArgument, "parameters of " + std::string(kParametersKind) + ": " + what};
}

Result<Bytes> read_limit(const Json& limit) {
  const auto* text = limit.get_ptr<const std::string*>();
  if (text == nullptr && !limit.is_number_unsigned())
    return wrong_parameters("limit has to be an amount such as \"16Gi\", or \"unlimited\"");
  if (text == nullptr) return Bytes{limit.get<std::uint64_t>()};
  if (*text == "unlimited") return kUnlimited;
  auto bytes = parse_quantity(*text);
  if (!bytes) return wrong_parameters("limit: " + bytes.error().message + ", nor \"unlimited\"");
  return *bytes;
}

// Requests are named by themselves, or with the main request that they are an alternative of.
bool is_for(const Json& config, const std::string& request) {
  const Json::array_t& names = array_field(config, {"requests"});
  const std::string main = request.substr(0, request.find('/'));
  return names.empty() || std::any_of(names.begin(), names.end(),
                                      [&](const Json& name) { return name == request || name == main; });
}

Error not_ready(std::string what) { return {Code::kFailedPrecondition, std::move(what)}; }

Result<Bytes> guarantee_of(const Json& result, const std::string& request) {
  const std::string where = "request " + request + ": ";
  if (field(result, {"adminAccess"}) == true)
    return not_ready(where + "admin access is not served: its memory would be nobody's");
  const Json& amount = field(result, {"consumedCapacity", "memory"});
  if (!amount.is_string())
    return not_ready(where +
                     "the scheduler gave it no amount of memory: the cluster lacks the feature "
                     "DRAConsumableCapacity, which is on from Kubernetes 1.36");
  auto bytes = parse_quantity(amount.get_ref<const std::string&>());
  if (!bytes) return bytes.error().in(where + "consumedCapacity of memory");
  if (bytes->is_zero())
    return not_ready(where + "it is given no memory; ask for some under capacity.requests");
  return bytes;
}

Result<Share> read_share(const Json& result, const Json::array_t& configs, const std::string& driver) {
  Share share{.request = text_field(result, {"request"}),
              .pool = text_field(result, {"pool"}),
              .device = text_field(result, {"device"}),
              .share_id = text_field(result, {"shareID"}),
              .guarantee = {},
              .limit = {}};
  auto guarantee = guarantee_of(result, share.request);
  if (!guarantee) return guarantee.error();
  auto parameters = parameters_of(configs, driver, share.request);
  if (!parameters) return parameters.error().in("request " + share.request);
  share.guarantee = *guarantee;
  share.limit = parameters->limit.value_or(share.guarantee);
  if (share.limit < share.guarantee)
    return Error{Code::kInvalidArgument, "request " + share.request + ": the limit of " +
                                             quantity_text(share.limit) + " is below the " +
                                             quantity_text(share.guarantee) +
                                             " that are asked for and guaranteed"};
  return share;
}

bool is_pods_own(const Json& claim) {
  const Json::array_t& owners = array_field(claim, {"metadata", "ownerReferences"});
  return std::any_of(owners.begin(), owners.end(), [](const Json& owner) {
    return text_field(owner, {"kind"}) == "Pod" && text_field(owner, {"apiVersion"}) == "v1";
  });
}

std::vector<PodReference> pods_of(const Json& claim) {
  std::vector<PodReference> pods;
  for (const Json& one : array_field(claim, {"status", "reservedFor"})) {
    if (text_field(one, {"resource"}) == "pods" && text_field(one, {"apiGroup"}).empty())
      pods.push_back({text_field(one, {"uid"}), text_field(one, {"name"})});
  }
  return pods;
}

}  // namespace

Result<Parameters> read_parameters(const Json& parameters) {
  if (!parameters.is_object()) return wrong_parameters("they have to be an object");
  if (text_field(parameters, {"apiVersion"}) != kParametersVersion)
    return wrong_parameters("apiVersion has to be " + std::string(kParametersVersion));
  if (text_field(parameters, {"kind"}) != kParametersKind)
    return wrong_parameters("kind has to be " + std::string(kParametersKind));
  Parameters read;
  for (const auto& [name, value] : parameters.items()) {
    if (name == "apiVersion" || name == "kind") continue;
    if (name != "limit") return wrong_parameters("unknown field \"" + name + "\"; there is: limit");
    auto limit = read_limit(value);
    if (!limit) return limit.error();
    read.limit = *limit;
  }
  return read;
}

Result<Parameters> parameters_of(const Json::array_t& configs, const std::string& driver,
                                 const std::string& request) {
  Parameters all;
  for (const Json& config : configs) {
    const Json& opaque = field(config, {"opaque"});
    if (text_field(opaque, {"driver"}) != driver || !is_for(config, request)) continue;
    auto read = read_parameters(field(opaque, {"parameters"}));
    if (!read) return read.error();
    if (read->limit) all.limit = read->limit;
  }
  return all;
}

Result<Allocation> read_claim(const Json& claim, const ClaimReference& asked, const std::string& driver) {
  if (const std::string uid = text_field(claim, {"metadata", "uid"}); uid != asked.uid)
    return Error{Code::kNotFound, "it was deleted and made anew: its UID is " + uid +
                                      ", that of the pod's claim was " + asked.uid};
  const Json& devices = field(claim, {"status", "allocation", "devices"});
  if (!devices.is_object())
    return not_ready("it has no allocation: the scheduler has not, or no longer, decided it");
  Allocation allocation{.shares = {}, .pods = pods_of(claim), .standalone = !is_pods_own(claim)};
  if (allocation.pods.empty()) return not_ready("it is reserved for no pod");
  for (const Json& result : array_field(devices, {"results"})) {
    if (text_field(result, {"driver"}) != driver) continue;
    auto share = read_share(result, array_field(devices, {"config"}), driver);
    if (!share) return share.error();
    allocation.shares.push_back(std::move(*share));
  }
  if (allocation.shares.empty()) return not_ready("nothing of the driver " + driver + " is allocated to it");
  return allocation;
}

}  // namespace gpumem::kubernetes
