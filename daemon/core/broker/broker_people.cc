#include <algorithm>

#include "daemon/core/broker/broker.h"

// Requests of people about sessions: to end a process, to give memory back.

namespace gpumem::core {
namespace {

std::string name_of(SessionId id) { return "session " + std::to_string(id.value); }

Error no_such_session(SessionId id) {
  return {Code::kNotFound, "there is no " + name_of(id) + "; see `gpumem ps`"};
}

Error not_its_user(const std::string& what, const Peer& by) {
  return {Code::kPermissionDenied, what +
                                       " is another user's: that user may do this, and administrators (root, "
                                       "or a member of the configured admin group); this is uid " +
                                       std::to_string(by.uid)};
}

std::string asked_by(const Peer& by) {
  return "uid " + std::to_string(by.uid) + " has asked for it (pid " + std::to_string(by.pid) + ", " +
         by.command + ")";
}

}  // namespace

Result<void> Broker::check_end(const Session& session, const Requester& by) const {
  if (!by.is_admin && !by.peer.may_decide_about(session.peer))
    return not_its_user(name_of(session.id), by.peer);
  if (session.detached)
    return Error{Code::kFailedPrecondition,
                 name_of(session.id) + " has no process: `gpumem regions rm` removes its regions"};
  if (!session.peer.can_be_ended)
    return Error{Code::kFailedPrecondition, "the broker cannot signal the process of " + name_of(session.id) +
                                                ": end it in the container or as the user that it runs in"};
  return {};
}

// Once: whoever could have it done again and again would fill the log and the events.
void Broker::end(Session& session, CommandJobId job, const Requester& by, TimePoint now) {
  if (session.exited || std::exchange(session.told_to_end, true)) return;
  Event& event = state_.note(Event::Kind::kTerminating, session, now);
  if (job) event.job = job;
  event.words = session.why = asked_by(by.peer);
  if (job) state_.jobs.at(job).why = event.words;
  state_.outbox.emit(SignalSession{session.id, Signal::kTerminate});
}

Result<void> Broker::end_by_request(SessionId id, const Requester& by, TimePoint now) {
  Session* session = state_.find(id);
  if (session == nullptr) return no_such_session(id);
  if (auto may = check_end(*session, by); !may) return may.error();
  end(*session, {}, by, now);
  return {};
}

Result<void> Broker::end_by_request(CommandJobId id, const Requester& by, TimePoint now) {
  const auto job = state_.jobs.find(id);
  const std::string name = "job " + std::to_string(id.value);
  if (job == state_.jobs.end())
    return Error{Code::kNotFound, "there is no " + name + "; see `gpumem job list`"};
  if (!by.is_admin && job->second.account != by.peer.account()) return not_its_user(name, by.peer);
  std::vector<SessionId> sessions{job->second.owner};
  if (!job->second.owner) sessions = state_.tenants.sessions_of(job->second.leaf);
  for (const SessionId one : sessions)
    if (auto may = check_end(state_.session(one), by); !may) return may.error();
  for (const SessionId one : sessions) end(state_.session(one), id, by, now);
  return {};
}

Result<Broker::AskedBack> Broker::ask_back(SessionId id, const std::string& device, Bytes bytes,
                                           const Requester& by, TimePoint now) {
  const Session* session = state_.find(id);
  if (session == nullptr) return no_such_session(id);
  const auto index = state_.find_device(device);
  if (!index) return Error{Code::kNotFound, "there is no device " + device + "; see `gpumem status`"};
  if (!by.is_admin && !by.peer.may_decide_about(session->peer)) return not_its_user(name_of(id), by.peer);
  const Bytes most = reclaimer_.answerable(*session, *index);
  if (session->detached || session->ended || most.is_zero())
    return Error{Code::kFailedPrecondition, name_of(id) + (most.is_zero() ? " has nothing of " + device
                                                                          : " cannot be asked: it is over")};
  reclaimer_.reclaim_manually(*session, *index, bytes, asked_by(by.peer), now);
  settle(now);
  return AskedBack{std::min(bytes, most), state_.policy.devices[*index].reclaim.deadline};
}

}  // namespace gpumem::core
