#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

#include "daemon/kubernetes/http/api_values.h"
#include "daemon/kubernetes/http/http_exchange.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// How often a call is tried when the server is not there, too busy or broken.
enum class Retry { kNot, kThrice };

/// The API server of the cluster. The token and the authorities are read anew for each call, because both are
/// replaced while the driver runs.
///
/// Errors of all calls: kUnavailable (not there, too busy, broken), kUnauthenticated (does not take the
/// token), kPermissionDenied (no right, or not the server that it should be), kNotFound, kAlreadyExists,
/// kAborted (the object has changed), kInvalidArgument (refuses the object), kInternal (other answers). All
/// say which object and what to do. Blocks: a call three times `patience` at most, and a second and a half.
/// Threads  any.
class ApiServer {
 public:
  struct Options {
    Endpoint endpoint;
    std::filesystem::path token_file;  ///< empty: none
    std::filesystem::path ca_file;     ///< empty: the system's authorities
    std::chrono::milliseconds patience{5000};
  };

  /// The server as pods find it: by KUBERNETES_SERVICE_HOST and the service account's folder.
  /// Errors  kFailedPrecondition: this is no pod.
  static Result<Options> in_cluster();

  explicit ApiServer(Options options) : options_(std::move(options)) {}

  /// No call begins any more, nor does a try of those that are under way: they fail with kUnavailable.
  /// Threads  any.
  void stop() { stopping_ = true; }

  Result<Json> get(const std::string& path, Retry retry = Retry::kThrice) const;
  Result<Json> create(const std::string& path, const Json& object) const;
  /// `object` with the resource version that it is to replace.
  Result<Json> replace(const std::string& path, const Json& object) const;
  /// That it is not there is no error.
  Result<void> remove(const std::string& path) const;

 private:
  Result<Json> call(HttpRequest request, Retry retry) const;
  Result<Json> call_once(HttpRequest& request) const;

  Options options_;
  std::atomic<bool> stopping_ = false;
};

/// `text` for one segment of a path, or one value of a query.
std::string escaped(const std::string& text);

}  // namespace gpumem::kubernetes
