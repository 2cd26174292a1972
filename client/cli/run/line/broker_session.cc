#include "client/cli/run/line/broker_session.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

#include "base/packet.h"
#include "base/system/unix_socket.h"
#include "client/cli/monitor/monitor.h"
#include "client/process/runtime_folder.h"
#include "client/process/status.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

constexpr std::chrono::seconds kAnswerTime{10};

constexpr char kBegin = 'b';
constexpr timeval kConnectTime{10, 0};

}  // namespace

Result<std::unique_ptr<BrokerSession>> BrokerSession::open(const std::filesystem::path& runtime_folder,
                                                           const std::string& label) {
  const std::filesystem::path socket = runtime_folder / kApiSocketName;
  if (auto there = probe(socket); !there) return there.error();
  return begin(std::unique_ptr<BrokerSession>(new BrokerSession(socket, broker_channel(socket))), label);
}

Result<std::unique_ptr<BrokerSession>> BrokerSession::open_over(UniqueFd connection,
                                                                const std::filesystem::path& runtime_folder,
                                                                const std::string& label) {
  const std::filesystem::path socket = runtime_folder / kApiSocketName;
  auto channel = grpc::CreateInsecureChannelFromFd("gpumemd", connection.release());
  return begin(std::unique_ptr<BrokerSession>(new BrokerSession(socket, channel)), label);
}

Result<std::unique_ptr<BrokerSession>> BrokerSession::begin(std::unique_ptr<BrokerSession> session,
                                                            const std::string& label) {
  v1::SessionRequest request;
  request.mutable_open()->set_label(label);
  auto answer = session->ask(std::move(request));
  if (!answer) return answer.error();
  session->opened_ = answer->opened();
  return session;
}

BrokerSession::BrokerSession(std::filesystem::path socket, const std::shared_ptr<grpc::Channel>& channel)
    : socket_(std::move(socket)),
      stub_(v1::Broker::NewStub(channel)),
      news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  stream_ = stub_->Session(&context_);
  reader_ = std::thread([this] { read(); });
}

BrokerSession::~BrokerSession() {
  context_.TryCancel();
  reader_.join();
}

void BrokerSession::read() {
  for (v1::SessionAnswer answer; stream_->Read(&answer); answer = {}) keep(std::move(answer));
  const grpc::Status status = stream_->Finish();
  const std::scoped_lock lock(mutex_);
  over_ = status.ok() ? Error{Code::kUnavailable, "the broker has ended the session"}
                      : call_error(status, socket_);
  tell();
}

void BrokerSession::keep(v1::SessionAnswer answer) {
  if (answer.has_waiting()) return;
  const std::scoped_lock lock(mutex_);
  if (answer.has_pressure())
    pressure_ = answer.pressure();
  else
    answers_[answer.id()] = std::move(answer);
  tell();
}

void BrokerSession::tell() {
  ::eventfd_write(news_.get(), 1);
  changed_.notify_all();
}

void BrokerSession::clear() const {
  eventfd_t count = 0;
  ::eventfd_read(news_.get(), &count);
}

std::uint64_t BrokerSession::send(v1::SessionRequest request) {
  const std::scoped_lock writing(writing_);
  request.set_id(++last_id_);
  stream_->Write(request);  // if it fails, the reader learns why
  return request.id();
}

Result<v1::SessionAnswer> BrokerSession::ask(v1::SessionRequest request) {
  const std::uint64_t id = send(std::move(request));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAnswerTime, [&] { return over_ || answers_.contains(id); });
  auto found = answers_.extract(id);
  if (found.empty())
    return over_ ? *over_ : Error{Code::kDeadlineExceeded, "the broker does not answer (10 s)"};
  if (found.mapped().has_failed()) return error_of(found.mapped().failed());
  return std::move(found.mapped());
}

std::optional<v1::Pressure> BrokerSession::take_pressure() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(pressure_, std::nullopt);
}

std::optional<Error> BrokerSession::over() const {
  const std::scoped_lock lock(mutex_);
  return over_;
}

Error error_of(const v1::FailedResponse& failed) {
  return {client::code_of(static_cast<std::uint64_t>(failed.code())), failed.message()};
}

Result<SessionHandover> SessionHandover::make(const std::filesystem::path& runtime_folder,
                                              const std::string& program) {
  SessionHandover handover;
  handover.socket_ = runtime_folder / kApiSocketName;
  if (auto trusted = client::check_owner(handover.socket_); !trusted) return trusted.error();
  const std::string name = std::filesystem::path(program).filename().string();
  std::copy_n(name.begin(), std::min(name.size(), handover.name_.size() - 1), handover.name_.begin());
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return errno_error(errno, "cannot make a socket");
  handover.own_.reset(ends[0]);
  handover.theirs_.reset(ends[1]);
  return handover;
}

bool SessionHandover::in_command() const {
  ::close(own_.get());  // so that the other process's end is seen
  ::prctl(PR_SET_NAME, name_.data());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // For a broker that hangs.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kConnectTime, sizeof kConnectTime);
  const int failed = connect_unix(socket.get(), socket_) == 0 ? 0 : errno, fd = socket.get();
  const std::span<const int> handed_over(&fd, failed == 0 ? 1u : 0u);
  const std::string_view bytes(reinterpret_cast<const char*>(&failed), sizeof failed);
  if (!send_packet(theirs_.get(), bytes, handed_over) || failed != 0) return false;
  socket.reset();
  char word = 0;
  ssize_t count = 0;
  while ((count = ::read(theirs_.get(), &word, 1)) < 0 && errno == EINTR) {
  }
  return count == 1 && word == kBegin;
}

Result<UniqueFd> SessionHandover::receive() {
  theirs_.reset();
  auto packet = receive_packet(own_.get(), sizeof(int), 1);
  if (!packet) return packet.error();
  int failed = 0;
  if (packet->bytes.size() != sizeof failed) return Error{Code::kInternal, "the new process has ended"};
  std::memcpy(&failed, packet->bytes.data(), sizeof failed);
  if (failed != 0) return client::connect_error(socket_, failed);
  if (packet->descriptors.empty()) return Error{Code::kInternal, "the new process has handed over no socket"};
  return std::move(packet->descriptors.front());
}

void SessionHandover::release(bool begins) {
  if (begins) static_cast<void>(::send(own_.get(), &kBegin, 1, MSG_NOSIGNAL) == 1);
  own_.reset();
}

}  // namespace gpumem::cli
