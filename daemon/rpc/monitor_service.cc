#include "daemon/rpc/monitor_service.h"

#include <algorithm>
#include <charconv>
#include <variant>

#include "daemon/core/words/policy.h"
#include "daemon/core/words/refusals.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/entitlement.h"
#include "daemon/rpc/event_stream.h"
#include "daemon/rpc/reconcile_call.h"

namespace gpumem::rpc {
namespace {

// What one page copies on the core's thread.
constexpr std::size_t kPageSlices = 1024;
constexpr std::size_t kPageTenants = 256;
constexpr std::size_t kPageRegions = 256;

std::size_t page_size(std::uint32_t asked, std::size_t most) {
  return asked == 0 ? most : std::min<std::size_t>(asked, most);
}

// The id that a page ended with, which the next one goes on behind.
template <class Id>
Result<Id> id_of(const std::string& token) {
  Id after;
  const auto [end, wrong] = std::from_chars(token.data(), token.data() + token.size(), after.value);
  if (!token.empty() && (wrong != std::errc() || end != token.data() + token.size()))
    return Error{Code::kInvalidArgument, "page_token: not one of a response"};
  return after;
}

// Has `copy` done on the core's thread: it answers the call's outcome, or what makes the response of its
// copies.
using Outcome = std::variant<Error, Snapshots::Present>;
template <class Copy>
grpc::ServerUnaryReactor* read(Snapshots& snapshots, Calls& calls, const grpc::CallbackServerContext& context,
                               Copy copy) {
  auto* const reactor = new Unary(calls, context);
  if (!reactor->is_taken()) return reactor;
  const bool taken = snapshots.take(
      [reactor, copy = std::move(copy)](core::Broker& broker, core::TimePoint now) -> Snapshots::Present {
        return [reactor, outcome = copy(broker, now)] {
          if (const auto* error = std::get_if<Error>(&outcome)) return reactor->Finish(to_status(*error));
          std::get<Snapshots::Present>(outcome)();
          reactor->Finish(grpc::Status::OK);
        };
      });
  if (!taken)
    reactor->Finish(to_status(core::refusal(core::Bound::kListings, "too many listings at once; try again")));
  return reactor;
}

// What a session's page tells.
struct Told {
  std::vector<std::uint64_t> in_use;                  // by slice
  std::vector<std::optional<ClientFigures>> figures;  // by device of SessionView::memory
};

Told told_by(const core::Executor& executor, const core::SessionView& view) {
  Told told;
  told.in_use.reserve(view.slices.size());
  for (const core::SliceView& slice : view.slices) {
    const auto figures = executor.client_figures(view.id, slice.device, slice.charged);
    told.in_use.push_back(figures ? figures->in_use : 0);
  }
  for (const core::MemoryView& memory : view.memory)
    told.figures.push_back(executor.client_figures(view.id, memory.device, memory.charges.total()));
  return told;
}

v1::SessionMemory memory_of(const core::MemoryView& view, const std::optional<ClientFigures>& figures,
                            const std::vector<std::string>& devices) {
  v1::SessionMemory memory;
  memory.set_device(devices.at(view.device));
  memory.set_held(view.charges.held().count);
  memory.set_returning(view.charges[core::Charge::kReturning].count);
  memory.set_quarantined(view.charges[core::Charge::kQuarantined].count);
  memory.set_told(figures.has_value());
  if (!figures) return memory;
  memory.set_reserved(figures->reserved);
  memory.set_committed(figures->committed);
  memory.set_in_use(figures->in_use);
  memory.set_peak(figures->peak);
  return memory;
}

void fill(v1::SessionInfo& info, const core::SessionView& view, const Told& told,
          const std::vector<std::string>& devices, core::TimePoint now) {
  info = to_proto(view, devices, now);
  for (std::size_t i = 0; i < view.slices.size(); ++i) {
    v1::SliceInfo& one = *info.add_slices();
    one = to_proto(view.slices[i], devices);
    one.set_in_use(told.in_use[i]);
  }
  for (std::size_t i = 0; i < view.memory.size(); ++i)
    *info.add_memory() = memory_of(view.memory[i], told.figures[i], devices);
}

// The tenant that an explanation is about. The caller's right to it is checked before anything is computed.
Result<std::string> tenant_asked_about(const core::Broker& broker, const v1::ExplainRequest& request) {
  if (request.about_case() == v1::ExplainRequest::ABOUT_NOT_SET)
    return Error{Code::kInvalidArgument, "name a session or a tenant"};
  if (!request.has_session()) return request.tenant();
  auto tenant = broker.tenant_of(SessionId{request.session()});
  if (tenant) return *tenant;
  return Error{Code::kNotFound,
               "there is no session " + std::to_string(request.session()) + "; see `gpumem ps`"};
}

// A user's own name is `uid:N` also where a rule covers it.
Result<core::Explanation> explain_absent(const core::Caller& caller, const core::Broker& broker,
                                         const std::string& tenant) {
  const auto uid = core::user_of_tenant(tenant);
  if (!uid) return Error{Code::kNotFound, "there is no tenant '" + tenant + "'; see `gpumem tenants`"};
  const bool is_own = caller.peer.uid == *uid && caller.peer.pod.empty();
  if (!is_own && !may_ask_about(caller, tenant, broker)) return may_not_ask_about(caller, tenant);
  if (is_own && !caller.tenant.empty() && caller.tenant != tenant)
    return Error{Code::kNotFound,
                 "you are tenant '" + caller.tenant + "'; see `gpumem why '" + caller.tenant + "'`"};
  return broker.explain_newcomer(*uid);
}

// A caller without the right is refused before the call counts against the limit, and before anything is
// computed.
Result<core::Explanation> explain(const core::Caller& caller, core::Broker& broker,
                                  const v1::ExplainRequest& request, core::TimePoint now) {
  const auto tenant = tenant_asked_about(broker, request);
  if (!tenant) return tenant.error();
  if (!broker.has_tenant(*tenant)) return explain_absent(caller, broker, *tenant);
  if (!may_ask_about(caller, *tenant, broker)) return may_not_ask_about(caller, *tenant);
  if (!caller.admin) {
    if (auto within = broker.count_explanation(caller.peer.account(), now); !within) return within.error();
  }
  auto explanation = request.has_session()
                         ? broker.explain_session(SessionId{request.session()}, caller.admin, now)
                         : broker.explain_tenant(*tenant, caller.admin, now);
  if (!explanation) return explanation.error();
  // The state of a common parent includes requests of other tenants. Callers without the right do not see
  // those.
  std::erase_if(explanation->waiting,
                [&](const core::Denial& one) { return !may_follow(caller, one.tenant, broker); });
  return explanation;
}

}  // namespace

grpc::ServerUnaryReactor* MonitorService::GetStatus(grpc::CallbackServerContext* context,
                                                    const v1::GetStatusRequest*,
                                                    v1::GetStatusResponse* response) {
  return read(snapshots_, calls_, *context,
              [this, response](core::Broker& broker, core::TimePoint now) -> Outcome {
                return [this, response, now, devices = broker.devices(), sessions = broker.session_count()] {
                  response->set_version(info_.version);
                  response->set_driver(info_.driver);
                  response->set_started(to_date(info_.started, now));
                  for (const core::DeviceView& view : devices) *response->add_devices() = to_proto(view, now);
                  response->set_sessions(sessions);
                };
              });
}

grpc::ServerUnaryReactor* MonitorService::ListTenants(grpc::CallbackServerContext* context,
                                                      const v1::ListTenantsRequest* request,
                                                      v1::ListTenantsResponse* response) {
  return read(snapshots_, calls_, *context,
              [request, response](core::Broker& broker, core::TimePoint) -> Outcome {
                const std::size_t most = page_size(request->page_size(), kPageTenants);
                auto views = broker.tenants(request->page_token(), most);
                return [response, most, views = std::move(views), devices = core::uuids_of(broker.policy())] {
                  for (const core::TenantView& view : views)
                    *response->add_tenants() = to_proto(view, devices[view.device]);
                  if (views.size() == most * devices.size()) response->set_next_page_token(views.back().name);
                };
              });
}

grpc::ServerUnaryReactor* MonitorService::ListJobs(grpc::CallbackServerContext* context,
                                                   const v1::ListJobsRequest* request,
                                                   v1::ListJobsResponse* response) {
  return read(snapshots_, calls_, *context,
              [request, response](core::Broker& broker, core::TimePoint now) -> Outcome {
                const auto after = id_of<core::CommandJobId>(request->page_token());
                if (!after) return after.error();
                const std::size_t most = page_size(request->page_size(), kPageTenants);
                auto views = broker.jobs(*after, most);
                return [response, most, now, views = std::move(views),
                        devices = core::uuids_of(broker.policy())] {
                  for (const core::JobView& view : views)
                    *response->add_jobs() = to_proto(view, devices, now);
                  if (views.size() == most)
                    response->set_next_page_token(std::to_string(views.back().id.value));
                };
              });
}

grpc::ServerUnaryReactor* MonitorService::ListSessions(grpc::CallbackServerContext* context,
                                                       const v1::ListSessionsRequest* request,
                                                       v1::ListSessionsResponse* response) {
  return read(snapshots_, calls_, *context,
              [this, request, response](core::Broker& broker, core::TimePoint now) -> Outcome {
                const auto after = id_of<SessionId>(request->page_token());
                if (!after) return after.error();
                auto views = broker.sessions(*after, page_size(request->page_size(), kPageSlices));
                std::vector<Told> told;
                told.reserve(views.size());
                for (const core::SessionView& view : views) told.push_back(told_by(executor_, view));
                const bool is_last = views.empty() || broker.sessions(views.back().id, 0).empty();
                return [response, now, is_last, views = std::move(views), told = std::move(told),
                        devices = core::uuids_of(broker.policy())] {
                  for (std::size_t i = 0; i < views.size(); ++i)
                    fill(*response->add_sessions(), views[i], told[i], devices, now);
                  if (!is_last) response->set_next_page_token(std::to_string(views.back().id.value));
                };
              });
}

grpc::ServerUnaryReactor* MonitorService::ListRegions(grpc::CallbackServerContext* context,
                                                      const v1::ListRegionsRequest* request,
                                                      v1::ListRegionsResponse* response) {
  return read(snapshots_, calls_, *context,
              [this, connection = connection_of(*context), request, response](
                  core::Broker& broker, core::TimePoint now) -> Outcome {
                const auto caller = caller_of(executor_, connection);
                if (!caller) return caller.error();
                const auto after = id_of<core::RegionId>(request->page_token());
                if (!after) return after.error();
                auto page = broker.regions({caller->tenant, caller->admin}, request->owner(), now, *after,
                                           page_size(request->page_size(), kPageRegions));
                return [response, now, page = std::move(page), devices = core::uuids_of(broker.policy())] {
                  for (const core::RegionView& view : page.regions)
                    *response->add_regions() = to_proto(view, devices, now);
                  if (page.next) response->set_next_page_token(std::to_string(page.next.value));
                };
              });
}

grpc::ServerUnaryReactor* MonitorService::Reconcile(grpc::CallbackServerContext* context,
                                                    const v1::ReconcileRequest* request,
                                                    v1::ReconcileResponse* response) {
  return reconcile(executor_, calls_, *context, {info_.observer, connection_of(*context), &refusing_},
                   *request, response);
}

grpc::ServerUnaryReactor* MonitorService::Explain(grpc::CallbackServerContext* context,
                                                  const v1::ExplainRequest* request,
                                                  v1::ExplainResponse* response) {
  return read(snapshots_, calls_, *context,
              [this, connection = connection_of(*context), request, response](
                  core::Broker& broker, core::TimePoint now) -> Outcome {
                const auto caller = caller_of(executor_, connection);
                if (!caller) return caller.error();
                auto explanation = explain(*caller, broker, *request, now);
                if (!explanation) return explanation.error();
                return [response, now, explanation = std::move(*explanation),
                        devices = core::uuids_of(broker.policy())] {
                  fill(*response, explanation, devices, now);
                };
              });
}

grpc::ServerWriteReactor<v1::Event>* MonitorService::WatchEvents(grpc::CallbackServerContext* context,
                                                                 const v1::WatchEventsRequest* request) {
  return new EventStream(executor_, calls_, subscribers_, *context, *request);
}

}  // namespace gpumem::rpc
