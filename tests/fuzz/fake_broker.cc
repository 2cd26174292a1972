#include "tests/fuzz/fake_broker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/packet.h"
#include "base/system/unix_socket.h"
#include "tests/fuzz/packets.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {

Listener::Listener() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  std::string name = (std::filesystem::temp_directory_path() / "gpumem-fuzz-XXXXXX").string();
  require(::mkdtemp(name.data()) != nullptr, "a temporary folder can be made");
  folder_ = name;
  require(bind_unix(socket_.get(), path()) == 0 && ::listen(socket_.get(), 8) == 0, "the socket listens");
}

Listener::~Listener() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

UniqueFd Listener::accept() const {
  return UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Pipe::Pipe() {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "a pipe can be made");
  reader_.reset(ends[0]);
  writer_.reset(ends[1]);
}

bool Pipe::is_let_go() {
  writer_.reset();
  pollfd polled{reader_.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP) != 0;
}

// ---- What is replied ----

Reply ReplyMaker::next() {
  Reply reply;
  const std::size_t most = input_.one_in(8) ? 16 : 4;
  for (std::size_t count = input_.below(most); count != 0; --count) reply.packets.push_back(packet());
  if (input_.one_in(16)) reply.end = Reply::End::kHangUp;
  if (may_be_silent_ && input_.one_in(4)) reply.end = Reply::End::kSilence;
  return reply;
}

Reply::Packet ReplyMaker::packet() {
  Reply::Packet packet;
  packet.numbered = !input_.one_in(12);
  packet.bytes = packet.numbered || input_.one_in(2) ? maybe_broken(input_, frame()) : garbage(input_);
  if (input_.one_in(8)) packet.further = input_.one_in(4) ? input_.word() : input_.below(3) - 1U;
  packet.descriptors = descriptors_for(packet.bytes);
  return packet;
}

std::string ReplyMaker::frame() {
  const auto framed = [&](const auto& body) { return std::string(lane::Outgoing(body).bytes()); };
  switch (input_.below(15)) {
    case 0: return framed(welcome());
    case 1: return framed(lane::SliceOpened{input_.word(), input_.word(), input_.word()});
    case 2: return framed(lane::Waiting{input_.word()});
    case 3:
    case 4:
    case 5: return framed(granted());
    case 6: return framed(lane::Done{});
    case 7: return framed(failed());
    case 8: return framed(lane::JobBegun{input_.word()});
    case 9: return framed(imported());
    case 10: return framed(lane::HandleExported{{}, input_.word()});
    case 11: return framed(region_mapped());
    case 12: return framed(lane::Published{input_.word()});
    case 13: return framed(lane::NameReserved{input_.word(), input_.word()});
    default: return framed(lane::CloseSlice{input_.word()});  // which only clients send
  }
}

lane::Welcome ReplyMaker::welcome() {
  lane::Welcome body{};
  body.version = input_.one_in(8) ? input_.word() : lane::kVersion;
  body.session = input_.byte();
  body.tenant = text<decltype(body.tenant)>(input_);
  body.driver_folder = text<decltype(body.driver_folder)>(input_);
  body.count = input_.below(body.devices.size() + 1);
  for (std::size_t i = 0; i < body.count; ++i) body.devices[i] = text<lane::Text<48>>(input_);
  return body;
}

// Mostly one that follows on the one before.
lane::Granted ReplyMaker::granted() {
  lane::Granted body{};
  body.grant = input_.one_in(8) ? input_.word() : 1;
  body.count = input_.below(input_.one_in(8) ? lane::kMostLeases + 1 : 4);
  body.missing = missing_ == 0 ? input_.below(3) : missing_ - std::min(missing_, body.count);
  missing_ = body.missing;
  if (input_.one_in(16)) body.missing = input_.word();
  for (std::size_t i = 0; i < body.count; ++i)
    body.leases[i] = {input_.byte(), input_.byte() * 4096ULL, input_.below(3)};
  return body;
}

lane::Imported ReplyMaker::imported() {
  lane::Imported body{};
  body.import = input_.byte();
  body.device = input_.below(3);
  body.offset = input_.one_in(8) ? input_.word() : input_.byte();
  body.bytes = input_.one_in(8) ? input_.word() : input_.byte();
  body.count = input_.below(input_.one_in(8) ? lane::kMostLeases + 1 : 4);
  for (std::size_t i = 0; i < body.count; ++i) body.sizes[i] = input_.word();
  return body;
}

lane::RegionMapped ReplyMaker::region_mapped() {
  const lane::Imported of = imported();
  return {input_.byte(), input_.word(), {}, of.import, of.device, of.offset, of.bytes, of.count, of.sizes};
}

lane::Failed ReplyMaker::failed() {
  lane::Failed body{};
  body.code = input_.byte();
  body.message = text<decltype(body.message)>(input_);
  body.denial.reason = input_.below(8);
  body.denial.waited = input_.word();
  body.denial.wait_limit = input_.word();
  body.denial.soonest_known = input_.below(2);
  body.denial.soonest = input_.word();
  body.denial.device = text<decltype(body.denial.device)>(input_);
  body.own = input_.byte();
  body.count = input_.below(lane::kMostHolders + 1);
  for (std::size_t i = 0; i < body.count; ++i)
    body.holders[i].command = text<decltype(body.holders[i].command)>(input_);
  return body;
}

// Mostly as many as belong to the frame.
std::size_t ReplyMaker::descriptors_for(std::string_view packet) {
  if (input_.one_in(8)) return input_.below(254);
  const auto frame = lane::parse(packet);
  if (!frame) return input_.below(3);
  if (frame->header.kind == lane::Kind::kWelcome) return 3;
  if (const auto imported = lane::body_of<lane::Imported>(*frame)) return imported->count;
  if (const auto mapped = lane::body_of<lane::RegionMapped>(*frame)) return mapped->count;
  const auto granted = lane::body_of<lane::Granted>(*frame);
  return granted ? granted->count : 0;
}

// ---- The broker's end ----

namespace {

template <class... Bodies>
bool is_one_of(const lane::Incoming& frame) {
  return (lane::body_of<Bodies>(frame).has_value() || ...);
}

}  // namespace

FakeBroker::FakeBroker(UniqueFd socket, std::deque<Reply> replies)
    : socket_(std::move(socket)), replies_(std::move(replies)), thread_([this] { serve(); }) {}

bool FakeBroker::is_let_go() {
  thread_.join();
  socket_.reset();
  return pipe_.is_let_go();
}

void FakeBroker::serve() {
  for (bool reset = false;;) {
    pollfd polled{socket_.get(), POLLIN, 0};
    (void)::poll(&polled, 1, -1);
    const auto packet = receive_packet(socket_.get(), lane::kMostBytes, 0);
    if (packet && packet->bytes.empty()) return;
    if (packet) {
      if (!take(packet->bytes)) return;
      continue;
    }
    require(packet.error().code != Code::kInvalidArgument, "the client's packet is no longer than a frame");
    // A client that closes with packets unread is reported once, before its last words.
    if (packet.error().code == Code::kUnavailable && std::exchange(reset, true)) return;
  }
}

// False: there is nobody to listen to any more.
bool FakeBroker::take(std::string_view packet) {
  const auto frame = lane::parse(packet);
  require(frame.has_value(), "the client sends frames");
  require(is_one_of<lane::Hello, lane::OpenSlice, lane::CloseSlice, lane::Grow, lane::Return, lane::Charge,
                    lane::Ping, lane::Cancel, lane::Accept, lane::Spent, lane::Goodbye, lane::ExportHandle,
                    lane::ImportHandle, lane::ReleaseImport, lane::RevokeHandle, lane::Publish,
                    lane::MapRegion, lane::MapOrReserve, lane::ReleaseReservation, lane::RemoveRegion,
                    lane::BeginJob, lane::ReserveForJob>(*frame),
          "the client's frames are whole");
  const lane::Kind kind = frame->header.kind;
  if (kind > lane::Kind::kPing && kind < lane::Kind::kExportHandle) return true;  // told, not answered
  const std::uint64_t request = frame->header.request;
  // Of what comes for nobody each lease may be returned, each import and reservation released: that alone
  // uses up no replies.
  if (kind == lane::Kind::kReturn || kind == lane::Kind::kReleaseImport ||
      kind == lane::Kind::kReleaseReservation) {
    (void)send_packet(socket_.get(), lane::Outgoing(lane::Done{}, request).bytes());
    return true;
  }
  Reply next;
  if (!replies_.empty()) {
    next = std::move(replies_.front());
    replies_.pop_front();
  }
  reply(next, request);
  return true;
}

void FakeBroker::reply(const Reply& reply, std::uint64_t request) {
  for (Reply::Packet packet : reply.packets) {
    const std::uint64_t number = request + packet.further;
    constexpr std::size_t kAt = offsetof(lane::Header, request);
    if (packet.numbered && packet.bytes.size() >= kAt + sizeof number)
      std::memcpy(packet.bytes.data() + kAt, &number, sizeof number);
    (void)send_packet(socket_.get(), packet.bytes, pipe_.copies(packet.descriptors));
  }
  lane::Failed failure{};
  failure.code = static_cast<std::uint64_t>(Code::kAborted);
  const bool fails = reply.end == Reply::End::kFailure;
  const bool failed = fails && send_packet(socket_.get(), lane::Outgoing(failure, request).bytes());
  if (reply.end == Reply::End::kHangUp) ::shutdown(socket_.get(), SHUT_WR);
  if (fails && !failed) ::shutdown(socket_.get(), SHUT_RDWR);  // no room: or it would wait for an answer
}

}  // namespace gpumem::fuzz
