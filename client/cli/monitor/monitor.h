#pragma once

#include <grpcpp/support/status.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "gpumem/result.h"
#include "gpumem/v1/broker.grpc.pb.h"
#include "gpumem/v1/broker.pb.h"
#include "proto/channel.h"
#include "proto/lane.h"

namespace gpumem::cli {

/// Converts the failed `status` of a call to the broker at `socket` into an error.
/// kDeadlineExceeded: a broker is there, and does not answer. kUnavailable: there is none, or it starts or
/// stops. Other codes are the broker's own.
Error call_error(const grpc::Status& status, const std::filesystem::path& socket);

/// Whether somebody listens at the stream `socket`. Errors  as client::connect_error.
Result<void> probe(const std::filesystem::path& socket);

/// Calls `method` of `stub`. `stop`  calls it off. Errors  kDeadlineExceeded: the broker at `socket` does not
/// answer; the broker's own.
template <class Stub, class Request, class Response>
Result<Response> call_stub(Stub& stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                           const Request& request, std::chrono::seconds timeout,
                           const std::filesystem::path& socket, const std::stop_token& stop = {}) {
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  set_timeout(context, timeout);
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return call_error(status, socket);
  return response;
}

/// Connects to the broker of the folder for one call of its Service.
/// Errors  as client::connect_error, and as call_stub.
template <class Service, class Request, class Response>
Result<Response> call_broker(const std::filesystem::path& runtime_folder,
                             grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                   Response*),
                             const Request& request, std::chrono::seconds timeout) {
  const std::filesystem::path socket = runtime_folder / kApiSocketName;
  if (auto there = probe(socket); !there) return there.error();
  return call_stub(*Service::NewStub(broker_channel(socket)), method, request, timeout, socket);
}

/// The broker's views. Every caller sees the listings; explanations and events are for the tenant that they
/// are about and for administrators. Opens no session.
class Monitor {
 public:
  /// Errors  as client::connect_error.
  static Result<Monitor> connect(const std::filesystem::path& runtime_folder);

  /// Errors  kUnavailable (the broker is gone), kDeadlineExceeded (it does not answer), the broker's own.
  Result<v1::GetStatusResponse> status() const;
  Result<v1::ListTenantsResponse> tenants() const;
  Result<v1::ListJobsResponse> jobs() const;
  /// The accounts that the caller may see.
  Result<v1::ListAccountsResponse> accounts() const;
  Result<v1::ListSessionsResponse> sessions() const;
  /// The regions that the caller may see. `owner`  only of this tenant; empty: of all.
  Result<v1::ListRegionsResponse> regions(const std::string& owner) const;
  /// Ends a region of any tenant, for an administrator. Errors  as connect() and the others.
  static Result<void> remove_region(const std::filesystem::path& runtime_folder, const std::string& owner,
                                    const std::string& name, std::uint64_t version);
  /// `now`  has the broker ask the driver first.
  Result<v1::ReconcileResponse> reconcile(bool now) const;
  Result<v1::ExplainResponse> explain(const v1::ExplainRequest& request,
                                      const std::stop_token& stop = {}) const;
  /// Gives each event to `show` until that answers false, the broker has told all, or `stop` is requested.
  /// Errors  as the others, and kCancelled: stopped.   Blocks.
  Result<void> watch_events(const v1::WatchEventsRequest& request,
                            const std::function<bool(const v1::Event&)>& show, std::stop_token stop) const;
  /// Which samples of a stream are waited for.
  enum class Watched { kAll, kFirst };
  /// Gives each sample, its messages as one, to `show` until that answers false, or `stop` is requested.
  /// Errors  as watch_events(); of kFirst, too: kDeadlineExceeded (none has come).   Blocks.
  Result<void> watch(const std::function<bool(v1::Sample)>& show, std::stop_token stop,
                     Watched which = Watched::kAll) const;

 private:
  template <class Request, class Response>
  using Method = grpc::Status (v1::Monitor::Stub::*)(grpc::ClientContext*, const Request&, Response*);
  template <class Request, class Response>
  Result<Response> call(Method<Request, Response> method, const Request& request = {}) const;

  template <class Request, class Response>
  Result<Response> list(Method<Request, Response> method, const Request& request = {}) const;
  template <class Request, class Response>
  Result<Response> pages(Method<Request, Response> method, Request request = {}) const;
  explicit Monitor(std::filesystem::path socket);

  std::filesystem::path socket_;
  std::unique_ptr<v1::Monitor::Stub> stub_;
};

/// The usage of `device` (UUID) by `tenant`. A listing: no bound of a user's explanations refuses it.
/// Errors  as Monitor's; kNotFound: no such tenant, or device.
Result<v1::TenantUsage> usage_of(const Monitor& monitor, const std::string& tenant,
                                 const std::string& device);

/// Returns the `names` that are no tenants now; none if the broker does not answer. A user without a session
/// is no tenant yet.
std::vector<std::string> unknown_tenants(const Monitor& monitor, const std::vector<std::string>& names);

/// The UUID of the lent device that `text` means: a UUID, the beginning of one, or its place in `gpumem
/// status`, from 0 or gpu0. Of `status`, the UUIDs suffice. Errors  kNotFound: none, or more than one; says
/// which there are.
Result<std::string> find_device(const v1::GetStatusResponse& status, const std::string& text);

/// The first lent device that a program sees, of those that CUDA_VISIBLE_DEVICES names (empty: all).
/// Errors  kNotFound: none is lent.
Result<std::string> first_visible(const v1::GetStatusResponse& status, const std::string& visible);

/// Whether the error is one of a broker that is being restarted, or that refuses too many questions a second.
bool may_pass(const Error& error);

/// Calls `watch` with the broker of the folder, and again a second after it has ended, until `stop`.
/// `goes_on` is told how it ended, and ends this by false.   Blocks.
void keep_watching(const std::filesystem::path& runtime_folder, const std::stop_token& stop,
                   const std::function<Result<void>(const Monitor& monitor)>& watch,
                   const std::function<bool(const Result<void>& watched)>& goes_on);

}  // namespace gpumem::cli
