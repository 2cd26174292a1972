#pragma once
#include <filesystem>
#include <memory>

#include "gpumem/result.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::cli {

/// What the broker shows to anyone who may connect; opens no session.
class Monitor {
 public:
  /// Errors  as client::connect_error.
  static Result<Monitor> connect(const std::filesystem::path& runtime_folder);

  /// Errors  kUnavailable (the broker is gone), kDeadlineExceeded (it does not answer), the broker's own.
  Result<v1::GetStatusResponse> status() const;
  Result<v1::ListTenantsResponse> tenants() const;
  Result<v1::ListSessionsResponse> sessions() const;

 private:
  template <class Request, class Response>
  using Method = grpc::Status (v1::Monitor::Stub::*)(grpc::ClientContext*, const Request&, Response*);
  template <class Request, class Response>
  Result<Response> call(Method<Request, Response> method) const;

  explicit Monitor(std::filesystem::path socket);

  std::filesystem::path socket_;
  std::unique_ptr<v1::Monitor::Stub> stub_;
};

/// Whether somebody listens at the stream `socket`. Errors  as client::connect_error.
Result<void> probe(const std::filesystem::path& socket);

}  // namespace gpumem::cli
