#include "daemon/rpc/session_stream.h"

#include "daemon/rpc/calls.h"

namespace gpumem::rpc {
namespace {

constexpr auto kOpeningPatience = std::chrono::seconds(10);

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionAnswer>* BrokerService::Session(
    grpc::CallbackServerContext* context) {
  return new SessionStream(executor_, calls_, *context);
}

SessionStream::SessionStream(core::Executor& executor, Calls& calls, grpc::CallbackServerContext& context)
    : executor_(executor),
      calls_(calls),
      writer_(std::make_shared<SessionWriter>(*this, context)),
      session_(std::make_shared<SessionCalls>(executor, writer_, connection_of(context))) {
  calls_.begin();
  opening_.Set(std::chrono::system_clock::now() + kOpeningPatience,
               [&executor, weak = std::weak_ptr(session_)](bool expired) {
                 if (!expired) return;
                 executor.post([weak](core::Broker&, core::TimePoint) {
                   if (const auto session = weak.lock()) session->expire();
                 });
               });
  writer_->read();
}

void SessionStream::OnReadDone(bool ok) {
  if (!ok)
    return executor_.post_for(session_->connection(),
                              [session = session_](core::Broker&, core::TimePoint) { session->leave(); });
  executor_.post_for(session_->connection(),
                     [writer = writer_, session = session_](core::Broker& broker, core::TimePoint now) {
                       session->receive(writer->request(), broker, now);
                       writer->read();
                     });
}

void SessionStream::OnWriteDone(bool ok) { writer_->written(ok); }

void SessionStream::OnCancel() { writer_->cancelled(); }

void SessionStream::OnDone() {
  executor_.post_for(session_->connection(),
                     [session = session_](core::Broker&, core::TimePoint) { session->end(); });
  Calls& calls = calls_;
  delete this;
  calls.end();
}

}  // namespace gpumem::rpc
