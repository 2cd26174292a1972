#include "daemon/history/history_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/log.h"

namespace gpumem::history {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Stream = beast::basic_stream<asio::local::stream_protocol>;

constexpr std::size_t kHeaderBytes = 8192;
constexpr std::chrono::seconds kRequest{5}, kResponse{10};
constexpr std::chrono::milliseconds kPause{100};

Result<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return errno_error(errno, "cannot tell who connected");
  std::vector<gid_t> groups(65'536);  // as many as the kernel allows a process
  length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length) != 0) length = 0;
  groups.resize(length / sizeof(gid_t));
  groups.insert(groups.begin(), credentials.gid);
  return Peer{credentials.uid, std::move(groups)};
}

}  // namespace

// One request and its answer.
class HistoryServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HistoryServer& server, UniqueFd socket, Peer peer)
      : server_(server),
        counts_(server.counts_),
        peer_(std::move(peer)),
        stream_(server.loop_),
        buffer_(kHeaderBytes) {
    ++counts_->all;
    ++counts_->of_user[peer_.uid];
    stream_.socket().assign(asio::local::stream_protocol(), socket.release());
  }
  ~Connection() {
    --counts_->all;
    if (const auto user = counts_->of_user.find(peer_.uid); --user->second == 0) counts_->of_user.erase(user);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start() {
    parser_.header_limit(kHeaderBytes);
    parser_.body_limit(0);
    stream_.expires_after(kRequest);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                       if (!error) self->answer(self->handled());
                     });
  }

  void answer(const Answer& answer) {
    response_.result(answer.status);
    response_.version(11);
    response_.keep_alive(false);
    response_.set(http::field::content_type, "application/json");
    response_.body() = answer.body.dump(-1, ' ', false, Json::error_handler_t::replace);
    response_.prepare_payload();
    stream_.expires_after(kResponse);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code, std::size_t) {});
  }

 private:
  Answer handled() const {
    const auto method = parser_.get().method_string();
    const auto target = parser_.get().target();
    return server_.handle_(peer_, std::string(method.data(), method.size()),
                           std::string(target.data(), target.size()));
  }

  HistoryServer& server_;
  const std::shared_ptr<Counts> counts_;
  const Peer peer_;
  Stream stream_;
  beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
};

HistoryServer::HistoryServer(asio::io_context& loop, UniqueFd socket, Handle handle)
    : loop_(loop), socket_(loop, socket.release()), pause_(loop), handle_(std::move(handle)) {
  await();
}

void HistoryServer::await() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const beast::error_code& error) {
    if (!error) accept();
  });
}

void HistoryServer::accept() {
  UniqueFd connection(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool has_no_room = !connection.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
  if (connection.valid()) take(std::move(connection));
  if (!has_no_room) return await();
  pause_.expires_after(kPause);
  pause_.async_wait([this](const beast::error_code& error) {
    if (!error) await();
  });
}

void HistoryServer::take(UniqueFd socket) {
  auto peer = peer_of(socket.get());
  if (!peer) return;
  const auto user = counts_->of_user.find(peer->uid);
  const std::size_t most =
      peer->uid == 0 ? kMostConnections : kMostConnections - kMostOfUser;  // root finds a place
  const bool is_much =
      counts_->all >= most || (user != counts_->of_user.end() && user->second >= kMostOfUser);
  if (is_much) return;  // closed: a client asks again
  std::make_shared<Connection>(*this, std::move(socket), std::move(*peer))->start();
}

}  // namespace gpumem::history
