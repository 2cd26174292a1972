#include <benchmark/benchmark.h>
#include <grpcpp/create_channel.h>

#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"

// The time of a growth by gRPC alone, without the library: a request on the session's stream and its answer.
// Nothing is mapped; memory comes by IPC handles.

namespace gpumem::bench {
namespace {

/// A session by gRPC, with one slice.
class StreamSession {
 public:
  explicit StreamSession(const Broker& broker)
      : stub_(v1::Broker::NewStub(
            grpc::CreateChannel("unix:" + broker.api_socket().string(), grpc::InsecureChannelCredentials()))),
        stream_(stub_->Session(&context_)) {
    v1::SessionRequest open;
    open.mutable_open();
    const std::string device = ask(open).opened().devices(0).uuid();
    v1::SessionRequest slice;
    slice.mutable_open_slice()->set_device(device);
    slice_ = ask(slice).slice_opened().slice();
  }
  ~StreamSession() {
    stream_->WritesDone();
    v1::SessionAnswer rest;
    while (stream_->Read(&rest)) continue;
    static_cast<void>(stream_->Finish());
  }
  StreamSession(const StreamSession&) = delete;
  StreamSession& operator=(const StreamSession&) = delete;

  v1::GrowResponse grow(Bytes bytes) {
    v1::SessionRequest request;
    v1::GrowPart& part = *request.mutable_grow()->add_parts();
    part.set_slice(slice_);
    part.set_bytes(bytes.count);
    const v1::SessionAnswer answer = ask(request);
    require(answer.has_granted(), "grow by gRPC", answer.failed().message());
    return answer.granted();
  }
  void give_back(const v1::GrowResponse& granted) {
    v1::SessionRequest request;
    v1::ReturnRequest& returned = *request.mutable_give_back();
    returned.set_slice(slice_);
    for (const v1::Lease& lease : granted.leases()) returned.add_leases(lease.id());
    require(ask(request).has_done(), "give back by gRPC");
  }

 private:
  v1::SessionAnswer ask(v1::SessionRequest& request) {
    request.set_id(++last_);
    require(stream_->Write(request), "the stream", "has ended");
    v1::SessionAnswer answer;
    do {
      require(stream_->Read(&answer), "the stream", "has ended");
    } while (answer.id() != last_);
    return answer;
  }

  std::unique_ptr<v1::Broker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionAnswer>> stream_;
  std::uint64_t last_ = 0;
  std::uint64_t slice_ = 0;
};

void stream_growth(benchmark::State& state, World& world, Bytes bytes) {
  StreamSession session(world.broker);
  Samples grow;
  Samples empty_call;
  for (auto _ : state) {
    world.broker.await_stock();
    empty_call.add(timed([&] { world.empty_service.call(); }));
    v1::GrowResponse granted;
    const auto took = timed([&] { granted = session.grow(bytes); });
    session.give_back(granted);
    grow.add(took);
    state.SetIterationTime(seconds(took));
  }
  state.counters["grow_us"] = grow.median_us();
  add_ratios(state, "grow_", grow.median_us(), world);
  state.counters["grow_per_near_call"] = grow.median_us() / empty_call.median_us();
}

}  // namespace

void register_stream_growth(World& world) {
  benchmark::RegisterBenchmark("stream_growth/2MiB", stream_growth, std::ref(world), mebibytes(2))
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("stream_growth/64MiB", stream_growth, std::ref(world), mebibytes(64))
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
