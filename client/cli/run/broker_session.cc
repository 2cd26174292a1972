#include "client/cli/run/broker_session.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/eventfd.h>

#include "client/cli/monitor.h"
#include "client/status.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

constexpr std::chrono::seconds kAnswerTime{10};

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

std::optional<v1::SessionAnswer> BrokerSession::answer_to(std::uint64_t id) {
  const std::scoped_lock lock(mutex_);
  auto found = answers_.extract(id);
  return found.empty() ? std::nullopt : std::optional(std::move(found.mapped()));
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

}  // namespace gpumem::cli
