#include "bench/broker/empty_service.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>

#include "bench/must.h"
#include "bench/roles.h"

namespace gpumem::bench {
namespace {

class Answerer final : public v1::Monitor::CallbackService {
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
                                      v1::GetStatusResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

EmptyService::EmptyService() {
  const std::string socket = (folder_.path() / "empty.sock").string();
  process_ = std::make_unique<Process>(Process::start_role("serve_empty_calls", {socket}));
  process_->await_ready();
  stub_ = v1::Monitor::NewStub(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
  call();
}

EmptyService::~EmptyService() {
  stub_.reset();
  process_.reset();
}

void EmptyService::call() const {
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  const grpc::Status status = stub_->GetStatus(&context, {}, &response);
  require(status.ok(), "an empty call", status.error_message());
}

void serve_empty_calls(const RoleArguments& arguments) {
  Answerer answerer;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + arguments.at(0), grpc::InsecureServerCredentials());
  builder.RegisterService(&answerer);
  const auto server = builder.BuildAndStart();
  require(server != nullptr, "the empty service cannot listen");
  announce_ready();
  while (next_command() != '\0') continue;
  server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace gpumem::bench
