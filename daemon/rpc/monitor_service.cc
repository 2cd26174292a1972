#include "daemon/rpc/monitor_service.h"

#include <algorithm>
#include <map>
#include <variant>

#include "base/text/number.h"
#include "daemon/core/words/policy.h"
#include "daemon/core/words/refusals.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/entitlement.h"
#include "daemon/rpc/event_stream.h"
#include "daemon/rpc/reconcile_call.h"
#include "daemon/rpc/session_copies.h"

namespace gpumem::rpc {
namespace {

// What one page copies on the core's thread.
constexpr std::size_t kPageSlices = 1024;
constexpr std::size_t kPageTenants = 256;
constexpr std::size_t kPageRegions = 256;

std::size_t page_size(std::uint32_t asked, std::size_t most) {
  return asked == 0 ? most : std::min<std::size_t>(asked, most);
}

Error not_a_token() { return {Code::kInvalidArgument, "page_token: not one of a response"}; }

// The id that a page ended with, which the next one goes on behind.
template <class Id>
Result<Id> id_of(const std::string& token) {
  if (token.empty()) return Id();
  const auto after = whole_number<std::uint64_t>(token);
  return after ? Result<Id>(Id{*after}) : not_a_token();
}

// The name that a page ended with, which may be empty.
constexpr char kNameToken = '=';
Result<std::optional<std::string>> name_of(const std::string& token) {
  if (token.empty()) return std::optional<std::string>();
  if (token.front() != kNameToken) return not_a_token();
  return std::optional(token.substr(1));
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
      reactor->user(),
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

// A page of the accounts that the caller may see. A page that ends with others' accounts ends behind them, so
// that its token names none of theirs: they are passed over, so many pages of them.
core::UsagePage accounts_for(const core::Caller& caller, const core::Broker& broker,
                             std::optional<std::string> after, std::size_t most, core::TimePoint now) {
  constexpr int kMostPages = 32;
  core::UsagePage shown;
  for (int i = 0; i < kMostPages; ++i) {
    core::UsagePage page = broker.usage(after, most, now);
    std::erase_if(page.views, [&](const core::UsageView& view) {
      return !may_read_account(caller, view.tenant, broker);
    });
    shown.next = after = page.next;
    if (page.views.empty() && page.next) continue;
    shown.views = std::move(page.views);
    if (shown.next && !shown.views.empty()) shown.next = shown.views.back().tenant;
    break;
  }
  return shown;
}

// The users of the policy's tenants, by tenant.
using Users = std::map<std::string, std::uint32_t, std::less<>>;
Users users_of(const core::Policy& policy) {
  Users users;
  for (const core::TenantRule& rule : policy.tenants)
    if (rule.uid) users.emplace(rule.name, *rule.uid);
  return users;
}
std::optional<std::uint32_t> user_of(const std::string& tenant, const Users& users) {
  if (const auto found = users.find(tenant); found != users.end()) return found->second;
  return core::user_of_tenant(tenant);
}

void fill(v1::ListAccountsResponse& response, const std::vector<core::TenantRule>& rules) {
  for (const core::TenantRule& rule : rules) {
    if (!rule.uid && !rule.gid) continue;
    v1::TenantMember& member = *response.add_members();
    member.set_tenant(rule.name);
    if (rule.uid) member.set_uid(*rule.uid);
    if (rule.gid) member.set_gid(*rule.gid);
  }
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
                return [this, response, now, devices = broker.devices(), sessions = broker.session_count(),
                        not_lending = broker.stopped_lending()] {
                  response->set_version(info_.version);
                  response->set_driver(info_.driver);
                  response->set_started(to_date(info_.started, now));
                  for (const core::DeviceView& view : devices) *response->add_devices() = to_proto(view, now);
                  response->set_sessions(sessions);
                  response->set_not_lending(not_lending);
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

grpc::ServerUnaryReactor* MonitorService::ListAccounts(grpc::CallbackServerContext* context,
                                                       const v1::ListAccountsRequest* request,
                                                       v1::ListAccountsResponse* response) {
  return read(snapshots_, calls_, *context,
              [this, connection = connection_of(*context), request, response](
                  core::Broker& broker, core::TimePoint now) -> Outcome {
                const auto caller = caller_of(executor_, connection);
                if (!caller) return caller.error();
                const auto after = name_of(request->page_token());
                if (!after) return after.error();
                auto page =
                    accounts_for(*caller, broker, *after, page_size(request->page_size(), kPageTenants), now);
                const bool all = caller->admin || caller->reader;
                if (all && !*after) fill(*response, broker.policy().tenants);
                return [response, now, all, admin_gid = caller->admin_gid, page = std::move(page),
                        uids = users_of(broker.policy()), devices = core::uuids_of(broker.policy())] {
                  for (const core::UsageView& view : page.views) {
                    *response->add_accounts() = to_proto(view, devices, now);
                    if (const auto uid = user_of(view.tenant, uids))
                      response->mutable_accounts()->rbegin()->set_uid(*uid);
                  }
                  response->set_all(all);
                  if (all && admin_gid) response->set_admin_group(*admin_gid);
                  if (page.next) response->set_next_page_token(kNameToken + *page.next);
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
                auto copies =
                    copy_sessions(broker, executor_, *after, page_size(request->page_size(), kPageSlices));
                const bool is_last = copies.empty() || broker.sessions(copies.back().view.id, 0).empty();
                return [response, now, is_last, copies = std::move(copies),
                        devices = core::uuids_of(broker.policy())] {
                  for (const SessionCopy& copy : copies)
                    *response->add_sessions() = to_proto(copy, devices, now);
                  if (!is_last) response->set_next_page_token(std::to_string(copies.back().view.id.value));
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
                        devices = core::uuids_of(broker.policy()), not_lending = broker.stopped_lending()] {
                  fill(*response, explanation, devices, now);
                  response->set_not_lending(not_lending);
                };
              });
}

grpc::ServerWriteReactor<v1::Event>* MonitorService::WatchEvents(grpc::CallbackServerContext* context,
                                                                 const v1::WatchEventsRequest* request) {
  return new EventStream(executor_, calls_, subscribers_, *context, *request);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* MonitorService::Watch(grpc::CallbackServerContext* context,
                                                                  const grpc::ByteBuffer*) {
  return new WatchStream(executor_, calls_, viewing_, viewers_, *context);
}

}  // namespace gpumem::rpc
