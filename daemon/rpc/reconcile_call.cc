#include "daemon/rpc/reconcile_call.h"

#include <grpcpp/alarm.h>

#include <memory>

#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {
namespace {

constexpr std::chrono::seconds kLookPatience{5};
constexpr std::chrono::seconds kRefusalPause{1};

v1::Accounting accounting_of(const core::Accounting& sum) {
  v1::Accounting message;
  message.set_total(sum.total.count);
  message.set_free(sum.free.count);
  message.set_contexts(sum.contexts.count);
  message.set_declared(sum.declared.count);
  message.set_past_broker(sum.past_broker.count);
  message.set_unexplained(sum.unexplained());
  message.set_moving(sum.moving.count);
  message.set_tells_processes(sum.tells_processes);
  for (const core::Accounting::Process& process : sum.processes) {
    v1::SeenProcess& one = *message.add_processes();
    one.set_pid(process.pid);
    one.set_uid(process.uid);
    one.set_command(process.command);
    one.set_tenant(process.tenant);
    one.set_used(process.used.count);
    one.set_context(process.context.count);
    one.set_declared(process.declared.count);
    one.set_past_broker(process.past_broker.count);
    one.set_client(process.is_client);
    one.set_estimate(process.is_estimate);
  }
  return message;
}

// One call. Everything but the alarm happens on the core's thread.
struct Call {
  grpc::ServerUnaryReactor* reactor;  // null: finished
  v1::ReconcileResponse* response;
  std::unique_ptr<grpc::Alarm> alarm;

  void finish(const core::Broker& broker, core::TimePoint now) {
    if (reactor == nullptr) return;
    const auto& devices = broker.policy().devices;
    response->set_past_broker_allowance(broker.policy().past_broker.allowance.count);
    for (core::DeviceIndex i = 0; i < devices.size(); ++i) {
      if (devices[i].is_host()) continue;  // no driver tells of it
      const core::Reconciliation& seen = broker.reconciliation(i);
      v1::Reconciliation& message = *response->add_devices();
      message = reconciliation_of(seen, devices[i].uuid, now);
      if (seen.seen) *message.mutable_accounting() = accounting_of(seen.accounting);
    }
    std::exchange(reactor, nullptr)->Finish(grpc::Status::OK);
    alarm.reset();  // which holds the call
  }
  void refuse(const Error& error) {
    if (reactor == nullptr) return;
    std::exchange(reactor, nullptr)->Finish(to_status(error));
    alarm.reset();
  }
  // Has `work` done on the core's thread, unless the call is finished before.
  void set_alarm(core::Executor& executor, std::chrono::seconds pause, core::Executor::Work work) {
    alarm = std::make_unique<grpc::Alarm>();
    alarm->Set(std::chrono::system_clock::now() + pause, [&executor, work = std::move(work)](bool expired) {
      if (expired) executor.post(work);
    });
  }
};

void refuse_later(core::Executor& executor, const std::shared_ptr<Call>& call, std::size_t& refusing,
                  const Error& error) {
  if (refusing >= kMostHeldRefusals) return call->refuse(error);
  ++refusing;
  call->set_alarm(executor, kRefusalPause, [call, error, &refusing](core::Broker&, core::TimePoint) {
    --refusing;
    call->refuse(error);
  });
}

}  // namespace

v1::Reconciliation reconciliation_of(const core::Reconciliation& view, const std::string& device,
                                     core::TimePoint now) {
  v1::Reconciliation message;
  message.set_device(device);
  if (view.seen) message.set_seen(to_date(*view.seen, now));
  message.set_used(view.used.count);
  message.set_extents(view.extents.count);
  message.set_overhead(view.overhead.count);
  message.set_declared(view.declared.count);
  message.set_past_broker(view.past_broker.count);
  message.set_unexplained(view.unexplained.count);
  for (const core::Reconciliation::Process& process : view.processes) {
    v1::ForeignProcess& one = *message.add_processes();
    one.set_pid(process.pid);
    one.set_uid(process.uid);
    one.set_command(process.command);
    one.set_tenant(process.tenant);
    one.set_bytes(process.bytes.count);
  }
  message.set_problem(view.problem);
  if (!view.seen && view.problem.empty()) message.set_problem("the driver has not been asked yet");
  return message;
}

grpc::ServerUnaryReactor* reconcile(core::Executor& executor, Calls& calls,
                                    const grpc::CallbackServerContext& context, Look look,
                                    const v1::ReconcileRequest& request, v1::ReconcileResponse* response) {
  auto* reactor = new Unary(calls, context);
  if (!reactor->is_taken()) return reactor;
  auto call = std::make_shared<Call>(Call{reactor, response, nullptr});
  const auto finish = [call](core::Broker& broker, core::TimePoint now) { call->finish(broker, now); };
  if (look.observer == nullptr || !request.now()) {
    executor.post(finish);
    return reactor;
  }
  executor.post_for(
      look.connection, [&executor, look, call, finish](core::Broker& broker, core::TimePoint now) {
        const auto caller = caller_of(executor, look.connection);
        if (!caller) return call->finish(broker, now);
        if (auto asked = look.observer->look({caller->peer.account(), caller->admin}, finish); asked)
          call->set_alarm(executor, kLookPatience, finish);
        else
          refuse_later(executor, call, *look.refusing, asked.error());
      });
  return reactor;
}

}  // namespace gpumem::rpc
