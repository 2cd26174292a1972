#include "daemon/history/history_server.h"

#include <sys/socket.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace gpumem::history {
namespace {

std::optional<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  std::vector<gid_t> groups(65'536);  // as many as the kernel allows a process
  length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length) != 0) length = 0;
  groups.resize(length / sizeof(gid_t));
  groups.insert(groups.begin(), credentials.gid);
  return Peer{credentials.uid, std::move(groups)};
}

struct OpenConnections {
  std::size_t all = 0;
  std::map<std::uint32_t, std::size_t> of_user;
};

// The peer of `socket`, which is counted until it is released. Nothing: it is unknown, or one too many.
std::shared_ptr<const Peer> admitted(int socket, const std::shared_ptr<OpenConnections>& open) {
  auto peer = peer_of(socket);
  if (!peer) return nullptr;
  const auto user = open->of_user.find(peer->uid);
  const std::size_t most =
      peer->uid == 0 ? kMostConnections : kMostConnections - kMostOfUser;  // root finds a place
  if (open->all >= most || (user != open->of_user.end() && user->second >= kMostOfUser)) return nullptr;
  ++open->all;
  ++open->of_user[peer->uid];
  return {new Peer(std::move(*peer)), [open](const Peer* gone) {
            --open->all;
            if (--open->of_user[gone->uid] == 0) open->of_user.erase(gone->uid);
            delete gone;
          }};
}

http::Answer as_json(const Answer& answer) {
  return {.status = answer.status,
          .body = std::make_shared<const std::string>(
              answer.body.dump(-1, ' ', false, Json::error_handler_t::replace)),
          .fields = {{"Content-Type", "application/json"}},
          .is_last = true};
}

}  // namespace

http::HttpServer::Options serving(
    UniqueFd socket,
    std::function<Answer(const Peer& peer, const std::string& method, const std::string& target)> answer) {
  http::HttpServer::Options options;
  options.sockets.push_back(std::move(socket));
  options.limits.request = std::chrono::seconds(5);
  options.most_connections = kMostConnections;
  options.admit = [answer = std::move(answer),
                   open = std::make_shared<OpenConnections>()](int connection) -> http::HttpServer::Handle {
    auto peer = admitted(connection, open);
    if (!peer) return nullptr;  // a client asks again
    return [answer, peer = std::move(peer)](const http::Request& request,
                                            const http::HttpServer::Respond& respond) {
      const auto method = request.method_string(), target = request.target();
      respond(as_json(answer(*peer, {method.data(), method.size()}, {target.data(), target.size()})));
    };
  };
  return options;
}

}  // namespace gpumem::history
