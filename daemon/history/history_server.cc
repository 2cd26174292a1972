#include "daemon/history/history_server.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/system/nice_thread.h"
#include "base/system/peer_credentials.h"
#include "base/thread_guards.h"

namespace gpumem::history {
namespace {

std::optional<Peer> peer_of(int socket) {
  const auto credentials = peer_credentials(socket);
  if (!credentials) return std::nullopt;
  return Peer{credentials->uid, peer_groups(socket, credentials->gid)};
}

http::Answer as_json(const Answer& answer) {
  return {.status = answer.status,
          .body = std::make_shared<const std::string>(
              answer.body.dump(-1, ' ', false, Json::error_handler_t::replace)),
          .fields = {{"Content-Type", "application/json"}},
          .is_last = true};
}

}  // namespace

void UserTurns::add(std::uint32_t user, Work work) {
  const MutexLock lock(mutex_);
  auto& works = works_[user];
  if (works.empty()) order_.push_back(user);
  works.push_back(std::move(work));
  changed_.notify_all();
}

UserTurns::Work UserTurns::next(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  });
  const MutexLock lock(mutex_);
  while (order_.empty() && !stop.stop_requested()) changed_.wait(mutex_);
  if (stop.stop_requested()) return nullptr;
  const auto user = works_.find(order_.front());
  order_.pop_front();
  Work work = std::move(user->second.front());
  user->second.pop_front();
  if (user->second.empty())
    works_.erase(user);
  else
    order_.push_back(user->first);
  return work;
}

HistoryServer::HistoryServer(UniqueFd socket, AccountOf account_of, Answering answer)
    : account_of_(std::move(account_of)), answer_(std::move(answer)), server_(serving(std::move(socket))) {}

http::HttpServer::Options HistoryServer::serving(UniqueFd socket) {
  http::HttpServer::Options options;
  options.sockets.push_back(std::move(socket));
  options.limits.request = std::chrono::seconds(5);
  options.most_connections = kMostConnections;
  options.admit = [this](int connection) { return admit(connection); };
  return options;
}

void HistoryServer::start() {
  server_.start();
  const SignalsBlocked blocked;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    make_thread_nice();
    while (const auto work = questions_.next(stop)) work();
  });
}

void HistoryServer::stop() {
  thread_ = {};
  server_.stop();
}

// The connection is counted as long as its handle lives. Nothing: it is unknown whose it is, or one too many;
// a client asks again.
http::HttpServer::Handle HistoryServer::admit(int connection) {
  auto peer = peer_of(connection);
  if (!peer) return nullptr;
  const std::uint32_t account = account_of_(peer->uid);
  const MutexLock lock(mutex_);
  const auto own = open_.of_account.find(account);
  const std::size_t most =
      account == 0 ? kMostConnections : kMostConnections - kMostOfUser;  // root finds a place
  if (open_.all >= most || (own != open_.of_account.end() && own->second >= kMostOfUser)) return nullptr;
  ++open_.all;
  ++open_.of_account[account];
  const std::shared_ptr<const Peer> counted(new Peer(std::move(*peer)), [this, account](const Peer* gone) {
    delete gone;
    const MutexLock released(mutex_);
    --open_.all;
    if (--open_.of_account[account] == 0) open_.of_account.erase(account);
  });
  return [this, account, counted](const http::Request& request, const http::HttpServer::Respond& respond) {
    const auto method = request.method_string(), target = request.target();
    questions_.add(account, [this, peer = *counted, method = std::string(method.data(), method.size()),
                             target = std::string(target.data(), target.size()),
                             respond] { respond(as_json(answer_(peer, method, target))); });
  };
}

}  // namespace gpumem::history
