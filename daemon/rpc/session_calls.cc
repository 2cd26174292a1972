#include "daemon/rpc/session_calls.h"

#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {
namespace {

v1::SessionAnswer failed_with(const Error& error) {
  v1::SessionAnswer answer;
  answer.mutable_failed()->set_code(static_cast<std::int32_t>(error.code));
  answer.mutable_failed()->set_message(error.message);
  return answer;
}

v1::SessionAnswer failed_with(const core::GrowFailure& failure) {
  v1::SessionAnswer answer = failed_with(failure.error);
  if (!failure.denial) return answer;
  v1::Denial& denial = *answer.mutable_failed()->mutable_denial();
  denial = to_proto(*failure.denial);
  denial.clear_other_tenants();
  return answer;
}

Error too_many_leases() {
  return {Code::kInvalidArgument, "at most " + std::to_string(core::Return::kMostLeases) +
                                      " leases are given back at once: send several requests"};
}

v1::SessionAnswer done() {
  v1::SessionAnswer answer;
  answer.mutable_done();
  return answer;
}

Error cannot_import() {
  return {Code::kFailedPrecondition,
          "gRPC carries no descriptors, so memory cannot be mapped by it: redeem the handle with "
          "gpumem_import_handle, or on a lane"};
}

}  // namespace

void SessionCalls::receive(const v1::SessionRequest& request, core::Broker& broker, core::TimePoint now) {
  if (over_) return;
  const Call call{request.id(), broker, now};
  if (!session_ && !request.has_open())
    return refuse(grpc::StatusCode::FAILED_PRECONDITION, "the first message opens the session");
  switch (request.request_case()) {
    case v1::SessionRequest::kOpen: return open(call, request.open());
    case v1::SessionRequest::kOpenSlice: return open_slice(call, request.open_slice());
    case v1::SessionRequest::kCloseSlice:
      return answer_later(call, broker.close_slice(session_, {SliceId{request.close_slice().slice()}}, now));
    case v1::SessionRequest::kGrow: return grow(call, request.grow());
    case v1::SessionRequest::kCancel: return cancel(call, request.cancel());
    case v1::SessionRequest::kGiveBack:
      if (request.give_back().leases_size() > static_cast<int>(core::Return::kMostLeases))
        return answer_later(call, failed_with(too_many_leases()));
      return give_back(call, to_request(request.give_back()));
    case v1::SessionRequest::kExportHandle: return export_handle(call, request.export_handle());
    case v1::SessionRequest::kImportHandle:
    case v1::SessionRequest::kMapRegion:
    case v1::SessionRequest::kMapOrReserve: return answer_later(call, failed_with(cannot_import()));
    case v1::SessionRequest::kRevokeHandle: return revoke_handle(call, request.revoke_handle());
    case v1::SessionRequest::kPublish: return publish(call, request.publish());
    case v1::SessionRequest::kReleaseReservation:
      return answer_later(
          call, broker.release_reservation(
                    session_, {core::ReservationId{request.release_reservation().reservation()}}, now));
    case v1::SessionRequest::kRemoveRegion:
      return answer_later(
          call, broker.remove_region(
                    session_, {request.remove_region().name(), request.remove_region().version()}, now));
    case v1::SessionRequest::kReleaseImport:
      return release_import(call, {core::ImportId{request.release_import().import()}});
    case v1::SessionRequest::kCharge:
      return answer_later(call, broker.charge(session_, to_request(request.charge()), now));
    case v1::SessionRequest::kSpent:
      return answer_later(call, broker.spent(session_, {request.spent().device()}, now));
    case v1::SessionRequest::kPing: return answer_later(call, Result<void>());
    case v1::SessionRequest::kDescribe: return describe(call);
    case v1::SessionRequest::kExplain: return explain(call);
    case v1::SessionRequest::kBeginJob: return begin_job(call, request.begin_job());
    case v1::SessionRequest::kReserveForJob: return reserve_for_job(call, request.reserve_for_job());
    case v1::SessionRequest::kDescribeJob: return describe_job(call);
    case v1::SessionRequest::kGoodbye: return leave();
    case v1::SessionRequest::REQUEST_NOT_SET: break;
  }
  answer_later(call, failed_with(Error{Code::kInvalidArgument, "the broker does not know this request"}));
}

void SessionCalls::open(const Call& call, const v1::OpenSessionRequest& request) {
  if (session_) return refuse(grpc::StatusCode::INVALID_ARGUMENT, "the session is open already");
  if (!connection_)
    return refuse(grpc::StatusCode::UNAUTHENTICATED, "nobody is known at the other end of this call");
  auto opened = executor_.open_session(*connection_, request.label(), {request.job()}, shared_from_this());
  if (!opened) return refuse(static_cast<grpc::StatusCode>(opened.error().code), opened.error().message);
  session_ = *opened;
  devices_ = core::uuids_of(call.broker.policy());
  v1::SessionAnswer answer;
  v1::OpenSessionResponse& body = *answer.mutable_opened();
  body.set_session(session_.value);
  body.set_tenant(call.broker.tenant_name(session_));
  body.set_job(call.broker.job_of(session_).value);
  for (const core::DevicePolicy& device : call.broker.policy().devices) {
    v1::LentDevice& one = *body.add_devices();
    one.set_uuid(device.uuid);
    one.set_name(device.name);
    one.set_granularity(device.granularity.count);
  }
  answer_later(call, std::move(answer));
}

void SessionCalls::open_slice(const Call& call, const v1::OpenSliceRequest& request) {
  const auto opened = core::open_slice(executor_, call.broker, session_,
                                       {request.device(), {request.limit()}, request.label()}, call.now);
  if (!opened) return answer_later(call, failed_with(opened.error()));
  v1::SessionAnswer answer;
  fill(*answer.mutable_slice_opened(), *opened);
  answer_later(call, std::move(answer));
}

void SessionCalls::grow(const Call& call, const v1::GrowRequest& request) {
  begin_growth(call, [&](auto answer) { return executor_.grow(session_, to_request(request), answer); });
}

void SessionCalls::reserve_for_job(const Call& call, const v1::ReserveForJobRequest& request) {
  begin_growth(call,
               [&](auto answer) { return executor_.reserve_for_job(session_, to_request(request), answer); });
}

template <class Ask>
void SessionCalls::begin_growth(const Call& call, Ask ask) {
  const auto [growth, is_new] = growths_.try_emplace(call.number);
  if (!is_new) return refuse(grpc::StatusCode::INVALID_ARGUMENT, "two growths at once have one id");
  const RequestId id = ask([self = shared_from_this(), number = call.number](const auto& answer) {
    self->answer_growth(number, answer);
  });
  if (!id) return;  // answered, and gone from the growths under way
  growth->second = id;
  tell_of_waiting(call);
}

// The answer is the client's as soon as it is on its way: there are no descriptors that it could lack.
void SessionCalls::answer_growth(std::uint64_t number, const Result<core::Grant, core::GrowFailure>& answer) {
  growths_.erase(number);
  v1::SessionAnswer message;
  if (answer && answer->leases.empty()) {  // reserved
    message = done();
  } else if (answer) {
    fill(*message.mutable_granted(), *answer);
    executor_.post_for(
        connection_, [session = session_, grant = answer->id](core::Broker& broker, core::TimePoint) {
          static_cast<void>(broker.accept(session, grant));  // unless it has been returned meanwhile
        });
  } else {
    message = failed_with(answer.error());
  }
  message.set_id(number);
  writer_->write(std::move(message));
}

// Only if it is not decided once everything that follows from the request has been done.
void SessionCalls::tell_of_waiting(const Call& call) {
  executor_.after([self = shared_from_this(), number = call.number, now = call.now, &broker = call.broker] {
    const auto growth = self->growths_.find(number);
    if (growth == self->growths_.end()) return;
    const auto due = broker.answer_due(growth->second);
    if (!due) return;
    v1::SessionAnswer answer;
    answer.set_id(number);
    v1::GrowthWaiting& waiting = *answer.mutable_waiting();
    waiting.set_granted(*due == core::TimePoint::max());
    if (!waiting.granted()) waiting.set_within_ms(core::to_milliseconds(*due - now));
    self->writer_->write(std::move(answer));
  });
}

void SessionCalls::cancel(const Call& call, const v1::CancelRequest& request) {
  const auto growth = growths_.find(request.growth());
  if (growth != growths_.end()) executor_.cancel(RequestId(growth->second));
  answer_later(call, Result<void>());
}

void SessionCalls::give_back(const Call& call, const core::Return& request) {
  core::after_regions(
      executor_, call.broker, session_, request, call.now,
      [self = shared_from_this(), number = call.number](const core::Return& asked, core::Broker& broker,
                                                        core::TimePoint now) {
        self->answer_later({number, broker, now}, broker.give_back(self->session_, asked, now));
      });
}

void SessionCalls::release_import(const Call& call, const core::ReleaseImport& request) {
  core::after_regions(
      executor_, call.broker, session_, request, call.now,
      [self = shared_from_this(), number = call.number](const core::ReleaseImport& asked,
                                                        core::Broker& broker, core::TimePoint now) {
        self->answer_later({number, broker, now}, broker.release_import(self->session_, asked, now));
      });
}

void SessionCalls::export_handle(const Call& call, const v1::ExportHandleRequest& request) {
  if (request.kind() == v1::HANDLE_KIND_FABRIC) return export_fabric(call, request);
  if (request.kind() != v1::HANDLE_KIND_IPC) {
    return answer_later(
        call, failed_with(Error{Code::kInvalidArgument, "the broker knows no such kind of handle"}));
  }
  const auto exported =
      call.broker.export_handle(session_, to_request(request), core::new_handle(), call.now);
  if (!exported) return answer_later(call, failed_with(exported.error()));
  answer_exported(call, *exported);
}

void SessionCalls::answer_exported(const Call& call, const core::HandleExported& exported) {
  v1::SessionAnswer answer;
  v1::ExportHandleResponse& body = *answer.mutable_handle_exported();
  body.set_handle(exported.handle.data(), exported.handle.size());
  body.set_within_ms(core::to_milliseconds(exported.expires - call.now));
  answer_later(call, std::move(answer));
}

void SessionCalls::export_fabric(const Call& call, const v1::ExportHandleRequest& request) {
  const auto handle_of = [this](ExtentId extent) { return executor_.fabric_handle(extent); };
  const auto parts = call.broker.export_fabric(session_, to_request(request), handle_of, call.now);
  if (!parts) return answer_later(call, failed_with(parts.error()));
  v1::SessionAnswer answer;
  for (const core::FabricPart& part : *parts) {
    v1::FabricPart& one = *answer.mutable_handle_exported()->add_fabric();
    one.set_handle(part.handle.data(), part.handle.size());
    one.set_size(part.size.count);
    one.set_offset(part.offset.count);
    one.set_bytes(part.bytes.count);
    one.set_lease(part.lease.value);
  }
  answer_later(call, std::move(answer));
}

void SessionCalls::revoke_handle(const Call& call, const v1::RevokeHandleRequest& request) {
  const auto handle = to_handle(request.handle());
  if (!handle) return answer_later(call, failed_with(handle.error()));
  answer_later(call, call.broker.revoke_handle(session_, {*handle}));
}

void SessionCalls::publish(const Call& call, const v1::PublishRequest& request) {
  const auto asked = to_request(request);
  if (!asked) return answer_later(call, failed_with(asked.error()));
  const auto version = core::publish(executor_, call.broker, session_, *asked, call.now);
  if (!version) return answer_later(call, failed_with(version.error()));
  v1::SessionAnswer answer;
  answer.mutable_published()->set_version(version->value);
  answer_later(call, std::move(answer));
}

void SessionCalls::describe(const Call& call) {
  const auto view = call.broker.describe(session_);
  if (!view) return answer_later(call, failed_with(view.error()));
  v1::SessionAnswer answer;
  v1::SessionInfo& info = *answer.mutable_described();
  info = to_proto(*view, devices_, call.now);
  for (const core::SliceView& slice : view->slices) *info.add_slices() = to_proto(slice, devices_);
  answer_later(call, std::move(answer));
}

void SessionCalls::begin_job(const Call& call, const v1::BeginJobRequest& request) {
  const auto begun = core::begin_job(executor_, call.broker, session_, to_request(request), call.now);
  if (!begun) return answer_later(call, failed_with(begun.error()));
  v1::SessionAnswer answer;
  answer.mutable_job_begun()->set_job(begun->job.value);
  answer_later(call, std::move(answer));
}

void SessionCalls::describe_job(const Call& call) {
  const auto account = call.broker.job_account(session_);
  if (!account) return answer_later(call, failed_with(account.error()));
  v1::SessionAnswer answer;
  v1::DescribeJobResponse& body = *answer.mutable_job_described();
  body.set_peak(account->peak.count);
  body.set_waited_ms(core::to_milliseconds(account->waited));
  body.set_denied(account->denied);
  answer_later(call, std::move(answer));
}

void SessionCalls::explain(const Call& call) {
  const auto explanation = call.broker.explain(session_, call.now);
  if (!explanation) return answer_later(call, failed_with(explanation.error()));
  v1::SessionAnswer answer;
  fill(*answer.mutable_explained(), *explanation, devices_, call.now);
  answer_later(call, std::move(answer));
}

void SessionCalls::expire() {
  if (!session_ && !over_)
    refuse(grpc::StatusCode::DEADLINE_EXCEEDED, "the session was not opened within 10 seconds");
}

void SessionCalls::leave() {
  end();
  writer_->finish(grpc::Status::OK);
}

void SessionCalls::end() {
  if (std::exchange(over_, true) || !session_) return;
  executor_.end_session(session_);
}

void SessionCalls::pressed(const BrokerFigures& figures) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  v1::SessionAnswer answer;
  for (std::size_t i = 0; i < figures.device_count; ++i) {
    const DeviceFigures& device = figures.devices.at(i);
    if (device.pressure == 0) continue;
    v1::DevicePressure& one = *answer.mutable_pressure()->add_devices();
    one.set_device(devices_.at(i));
    one.set_bytes(device.pressure);
    const auto deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(device.pressure_deadline));
    one.set_within_ms(core::to_milliseconds(std::chrono::duration_cast<core::Duration>(deadline - now)));
  }
  if (answer.has_pressure()) writer_->write(std::move(answer));
}

void SessionCalls::closed(const Error& why) {
  over_ = true;
  writer_->cut(to_status(why));  // nobody waits for a client that does not read
}

void SessionCalls::answer_later(const Call& call, v1::SessionAnswer answer) {
  answer.set_id(call.number);
  executor_.after(
      [writer = writer_, answer = std::move(answer)]() mutable { writer->write(std::move(answer)); });
}

void SessionCalls::answer_later(const Call& call, const Result<void>& result) {
  answer_later(call, result ? done() : failed_with(result.error()));
}

void SessionCalls::refuse(grpc::StatusCode code, const std::string& why) {
  end();
  writer_->finish({code, why});
}

}  // namespace gpumem::rpc
