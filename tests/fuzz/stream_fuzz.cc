// Any requests on two sessions' streams of gRPC, well made or not, to rpc::SessionCalls over a real broker.
#include <array>
#include <map>
#include <memory>

#include "daemon/rpc/session_calls.h"
#include "tests/fuzz/broker_host.h"
#include "tests/fuzz/fake_stream.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

constexpr int kMostSteps = 100;
constexpr std::string_view kTexts[] = {"GPU-0", "GPU-1", "", "fuzz"};

// Requests that are none are not worth a line each.
[[maybe_unused]] auto* const kQuiet = google::protobuf::SetLogHandler(nullptr);

/// A client of one stream: what it asked, and what it was told.
class StreamClient {
 public:
  StreamClient(BrokerHost& host, int user)
      : host_(host),
        writer_(std::make_shared<rpc::SessionWriter>(stream_.stream(), stream_.context())),
        calls_(std::make_shared<rpc::SessionCalls>(host, writer_, user)) {}

  void ask(const v1::SessionRequest& request) {
    if (stream_.finished()) return;
    ++due_[request.id()];
    host_.run([&](core::Broker& broker, core::TimePoint now) { calls_->receive(request, broker, now); });
  }
  void open() {
    v1::SessionRequest request;
    request.set_id(1);
    request.mutable_open()->set_label("fuzz");
    ask(request);
  }
  /// Reads what was written. Ids are of this client's requests; each has one answer, besides that it waits.
  void read() {
    while (const v1::SessionAnswer* answer = stream_.take()) {
      note(*answer);
      writer_->written(true);
    }
  }
  /// The connection breaks, or its client leaves.
  void end(bool breaks) {
    if (breaks) writer_->cancelled();
    host_.run([&](core::Broker&, core::TimePoint) { breaks ? calls_->end() : calls_->leave(); });
    read();
    require(stream_.finished(), "a stream that is over is finished");
  }
  bool is_over() const { return stream_.finished(); }
  bool has_all_answers() const { return due_.empty(); }

 private:
  void note(const v1::SessionAnswer& answer) {
    require(!answer.SerializeAsString().empty(), "an answer says something");
    if (answer.has_pressure()) return require(answer.id() == 0, "pressure answers nothing");
    require(answer.answer_case() != v1::SessionAnswer::ANSWER_NOT_SET, "an answer is of some kind");
    const auto due = due_.find(answer.id());
    require(due != due_.end(), "only what was asked is answered, and once");
    if (answer.has_failed()) require(answer.failed().code() != 0, "a failure has a code");
    if (answer.has_granted()) note_grant(answer.granted());
    if (!answer.has_waiting() && --due->second == 0) due_.erase(due);
  }

  void note_grant(const v1::GrowResponse& granted) {
    require(granted.leases_size() != 0, "a grant is of something");
    for (const v1::Lease& lease : granted.leases()) require(lease.size() != 0, "a lease is of some memory");
  }

  BrokerHost& host_;
  FakeStream stream_;
  const std::shared_ptr<rpc::SessionWriter> writer_;
  const std::shared_ptr<rpc::SessionCalls> calls_;
  std::map<std::uint64_t, int> due_;  ///< answers that are to come, by the request's id
};

class Streams {
 public:
  explicit Streams(Input& input) : input_(input), host_(some_policy(input)) {
    for (std::size_t i = 0; i < clients_.size(); ++i) connect(i);
  }

  void step() {
    const std::size_t which = input_.below(2);
    switch (input_.below(16)) {
      case 13: host_.fail_next(input_.below(8)); break;
      case 14: host_.pass(std::chrono::milliseconds(input_.byte() * 100)); break;
      case 15: clients_[which]->end(input_.one_in(2)); break;
      default: clients_[which]->ask(request());
    }
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      clients_[i]->read();
      if (!clients_[i]->is_over()) continue;
      clients_[i]->end(true);
      connect(i);
    }
  }

  void finish() {
    host_.come_to_rest();
    for (const auto& client : clients_) {
      client->read();
      require(client->is_over() || client->has_all_answers(), "every request is answered");
      client->end(true);
    }
    host_.require_nothing_left();
  }

 private:
  void connect(std::size_t which) {
    clients_[which] = std::make_unique<StreamClient>(host_, static_cast<int>(which + 1));
    if (!input_.one_in(16)) clients_[which]->open();
  }

  v1::SessionRequest request() {
    v1::SessionRequest request;
    if (input_.one_in(8)) {
      const std::string_view bytes = input_.text(input_.byte());
      if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) request.Clear();
    } else {
      fill(request, input_, kTexts);
      if (!input_.one_in(4)) request.set_id(++last_id_ + 256);
    }
    return request;
  }

  Input& input_;
  BrokerHost host_;
  std::array<std::unique_ptr<StreamClient>, 2> clients_;
  std::uint64_t last_id_ = 0;
};

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::Input input({reinterpret_cast<const char*>(data), size});
  gpumem::fuzz::Streams streams(input);
  for (int i = 0; i < gpumem::fuzz::kMostSteps && !input.empty(); ++i) streams.step();
  streams.finish();
  return 0;
}
