#pragma once
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::rpc {

/// Answers every call as unavailable, for a broker that cannot serve yet, on connections that somebody else
/// accepts.
class UnavailableServer {
 public:
  /// `why`  in words, for every caller. Errors  kUnavailable: gRPC does not start.
  static Result<std::unique_ptr<UnavailableServer>> start(std::string why);
  /// As Server::serve().
  void serve(UniqueFd socket);

 private:
  class Service final : public grpc::CallbackGenericService {
   public:
    explicit Service(std::string why) : why_(std::move(why)) {}
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

   private:
    const std::string why_;
  };
  explicit UnavailableServer(std::string why) : service_(std::move(why)) {}

  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gpumem::rpc
