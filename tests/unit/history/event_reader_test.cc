// The reader of events, with a broker that the test plays.
#include "daemon/history/event_reader.h"

#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text/time_format.h"
#include "tests/support/eventually.h"

namespace gpumem::history {
namespace {

/// Tells the first caller its events. Ends each call at once.
class Broker final : public v1::Monitor::Service {
 public:
  /// `seconds`  since 1970, of events of the kinds a, b, ...
  explicit Broker(const std::vector<int>& seconds) {
    for (const int second : seconds) {
      v1::Event& event = events_.emplace_back();
      event.set_time(to_rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(second)),
                                Precision::kMicroseconds));
      event.set_kind(std::string(1, static_cast<char>('a' + events_.size() - 1)));
    }
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::shared_ptr<grpc::Channel> channel() { return server_->InProcessChannel({}); }

 private:
  grpc::Status WatchEvents(grpc::ServerContext*, const v1::WatchEventsRequest*,
                           grpc::ServerWriter<v1::Event>* writer) override {
    for (const v1::Event& event : std::exchange(events_, {})) writer->Write(event);
    return grpc::Status::OK;
  }

  std::vector<v1::Event> events_;
  std::unique_ptr<grpc::Server> server_;
};

/// The kinds of the events that are read behind `position`, and the position after them.
Sample read(Broker& broker, const EventPosition& position, std::size_t count) {
  const auto stub = v1::Monitor::NewStub(broker.channel());
  EventReader reader(*stub);
  reader.start(position);
  Sample all;
  EXPECT_TRUE(test::eventually([&] {
    Sample sample;
    reader.take(sample);
    std::ranges::move(sample.events, std::back_inserter(all.events));
    all.position = sample.position;
    return all.events.size() >= count;
  }));
  return all;
}

std::string kinds_in(const Sample& sample) {
  std::string kinds;
  for (const Event& event : sample.events) kinds += event.body.at(event.body.find("\"kind\":\"") + 8);
  return kinds;
}

TEST(EventReader, SkipsWhatItHasOfOneTime) {
  Broker broker({7, 7, 7, 8});
  const Sample sample = read(broker, {7 * kMicros, 2}, 2);
  EXPECT_EQ(kinds_in(sample).substr(0, 2), "cd");
}

// A broker tells kept events since the position, so an earlier one has just happened.
TEST(EventReader, GoesOnAfterTheClockWasSetBack) {
  Broker broker({50, 51});
  const Sample sample = read(broker, {1000 * kMicros, 3}, 2);
  EXPECT_EQ(kinds_in(sample).substr(0, 2), "ab");
  EXPECT_EQ(sample.position, (EventPosition{51 * kMicros, 1}));
}

}  // namespace
}  // namespace gpumem::history
