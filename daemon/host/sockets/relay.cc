#include "daemon/host/sockets/relay.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <span>
#include <utility>

#include "daemon/host/limits/socket_disposal.h"

namespace gpumem::host {
namespace {

// Pieces passed on before other connections have their turn.
constexpr int kPiecesInARow = 8;

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

Relay::Relay(boost::asio::io_context& loop, SocketDisposal& disposal, std::shared_ptr<UserCalls> user,
             Ended ended)
    : disposal_(disposal), guard_(std::move(user)), ended_(std::move(ended)), client_(loop), own_(loop) {}

Result<std::shared_ptr<Relay>> Relay::create(boost::asio::io_context& loop, UniqueFd client, UniqueFd own,
                                             SocketDisposal& disposal, std::shared_ptr<UserCalls> user,
                                             Ended ended) {
  const std::shared_ptr<Relay> relay(new Relay(loop, disposal, std::move(user), std::move(ended)));
  boost::system::error_code failed;
  relay->client_.assign(client.get(), failed);
  if (failed) {
    disposal.close(std::move(client));
    return Error{Code::kResourceExhausted, "cannot watch the connection: " + failed.message()};
  }
  static_cast<void>(client.release());
  relay->own_.assign(own.get(), failed);
  if (failed) return Error{Code::kResourceExhausted, "cannot watch the connection: " + failed.message()};
  static_cast<void>(own.release());
  return relay;
}

Relay::~Relay() {
  if (client_.is_open()) disposal_.close(UniqueFd(client_.release()));
}

void Relay::start() {
  pass(in_);
  pass(out_);
}

void Relay::pass(Direction& direction) {
  for (int i = 0; i < kPiecesInARow; ++i) {
    if (direction.done || !client_.is_open()) return;
    if (!(direction.begin == direction.end ? read_some(direction) : write_some(direction))) return;
  }
  boost::asio::post(client_.get_executor(),
                    [self = shared_from_this(), &direction] { self->pass(direction); });
}

// Of a client's socket no more is received than was seen to be without descriptors.
ssize_t Relay::receive(Direction& direction) {
  const int socket = direction.from->native_handle();
  std::size_t most = direction.bytes.size();
  if (direction.from_client) {
    const Readable next = look_at(socket, direction.bytes);
    if (next.descriptors) errno = EPROTO;
    if (next.descriptors || next.bytes < 0) return -1;
    most = static_cast<std::size_t>(next.bytes);
  }
  return ::recv(socket, direction.bytes.data(), most, MSG_DONTWAIT);
}

// Takes what is there; false if the direction has to wait, or is done.
bool Relay::read_some(Direction& direction) {
  const ssize_t count = receive(direction);
  if (count > 0) {
    direction.begin = 0;
    direction.end = static_cast<std::size_t>(count);
    const auto inspected = inspect(direction);
    if (!inspected) end(inspected.error().message);
    return inspected.has_value();
  }
  if (count < 0 && would_block())
    wait(direction, *direction.from, Descriptor::wait_read);
  else if (count < 0)
    end();
  else
    finish(direction);
  return false;
}

Result<void> Relay::inspect(const Direction& direction) {
  const auto bytes = std::span(direction.bytes).first(direction.end);
  if (direction.from_client) return guard_.from_client(bytes);
  guard_.from_broker(bytes);
  return {};
}

bool Relay::write_some(Direction& direction) {
  const ssize_t count = ::send(direction.to->native_handle(), direction.bytes.data() + direction.begin,
                               direction.end - direction.begin, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0 && would_block()) {
    wait(direction, *direction.to, Descriptor::wait_write);
    return false;
  }
  if (count < 0) {
    end();
    return false;
  }
  direction.begin += static_cast<std::size_t>(count);
  return true;
}

void Relay::wait(Direction& direction, Descriptor& on, Descriptor::wait_type what) {
  on.async_wait(what, [self = shared_from_this(), &direction](const boost::system::error_code& error) {
    if (!error) self->pass(direction);
  });
}

// One end says no more: the other is told, and may still answer.
void Relay::finish(Direction& direction) {
  direction.done = true;
  ::shutdown(direction.to->native_handle(), SHUT_WR);
  if (in_.done && out_.done) end();
}

void Relay::end(const std::string& why) {
  if (!client_.is_open()) return;
  disposal_.close(UniqueFd(client_.release()));
  boost::system::error_code ignored;
  own_.close(ignored);
  if (const auto ended = std::exchange(ended_, nullptr)) ended(why);
}

}  // namespace gpumem::host
