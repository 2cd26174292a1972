#include "client/cli/run/line/broker_session.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/cli/monitor/monitor.h"
#include "client/process/runtime_folder.h"
#include "client/process/status.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

constexpr std::chrono::seconds kAnswerTime{10};

constexpr char kBegin = 'b';
constexpr timeval kConnectTime{10, 0};

// One descriptor, or none and why.
bool send_fd(int channel, int fd, int number) {
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (number == 0) {
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(channel, &message, MSG_NOSIGNAL) == sizeof number && number == 0;
}

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
  const std::string& path = handover.socket_.native();
  if (path.size() >= sizeof handover.address_.sun_path)
    return client::connect_error(handover.socket_, ENAMETOOLONG);
  handover.address_.sun_family = AF_UNIX;
  std::memcpy(handover.address_.sun_path, path.c_str(), path.size());
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
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kConnectTime, sizeof kConnectTime);  // of a broker that hangs
  const bool is_there =
      fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) == 0;
  if (!send_fd(theirs_.get(), fd, is_there ? 0 : errno)) return false;
  ::close(fd);
  char word = 0;
  ssize_t count = 0;
  while ((count = ::read(theirs_.get(), &word, 1)) < 0 && errno == EINTR) {
  }
  return count == 1 && word == kBegin;
}

Result<UniqueFd> SessionHandover::receive() {
  theirs_.reset();
  int number = 0;
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  ssize_t count = 0;
  while ((count = ::recvmsg(own_.get(), &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (count != sizeof number) return Error{Code::kInternal, "the new process has ended"};
  if (number != 0) return client::connect_error(socket_, number);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
    return Error{Code::kInternal, "the new process has handed over no socket"};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

void SessionHandover::release(bool begins) {
  if (begins) static_cast<void>(::send(own_.get(), &kBegin, 1, MSG_NOSIGNAL) == 1);
  own_.reset();
}

}  // namespace gpumem::cli
