#include "daemon/kubernetes/parameters.h"

#include <algorithm>

#include "daemon/kubernetes/quantity.h"

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

}  // namespace gpumem::kubernetes
