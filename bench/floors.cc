#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "bench/must.h"
#include "bench/roles.h"
#include "bench/samples.h"
#include "bench/world.h"

// What a call cannot be faster than, and an empty call through all of the broker.

namespace gpumem::bench {
namespace {

// Two processes, one byte each way, blocking calls: no polling, no protocol, two switches of the kernel.
void socket_round_trip(benchmark::State& state, World& world) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0,
          "cannot make a pair of sockets");
  const UniqueFd own(ends[0]);
  UniqueFd theirs(ends[1]);
  Process echo = Process::start_role("echo_packets", {std::to_string(theirs.get())}, theirs.get());
  theirs.reset();
  Samples samples;
  for (auto _ : state) {
    samples.add(timed([&] {
      char byte = 1;
      require(::send(own.get(), &byte, 1, MSG_NOSIGNAL) == 1 && ::recv(own.get(), &byte, 1, 0) == 1, "echo");
    }));
  }
  ::shutdown(own.get(), SHUT_RDWR);
  world.round_trip_us = samples.median_us();
  state.counters["median_us"] = samples.median_us();
}

void grpc_empty_call(benchmark::State& state, World& world) {
  Samples samples;
  for (auto _ : state) samples.add(timed([&] { world.empty_service.call(); }));
  world.empty_call_us = samples.median_us();
  state.counters["median_us"] = samples.median_us();
}

void broker_ping(benchmark::State& state, World& world) {
  Session session = world.broker.connect();
  must(session.ping(), "ping");
  Samples samples;
  for (auto _ : state) samples.add(timed([&] { must(session.ping(), "ping"); }));
  state.counters["median_us"] = samples.median_us();
  add_ratios(state, "", samples.median_us(), world);
}

}  // namespace

void echo_packets(const RoleArguments& arguments) {
  const UniqueFd socket(std::stoi(arguments.at(0)));
  char byte = 0;
  while (::recv(socket.get(), &byte, 1, 0) == 1 && ::send(socket.get(), &byte, 1, MSG_NOSIGNAL) == 1)
    continue;
}

void register_floors(World& world) {
  benchmark::RegisterBenchmark("socket_round_trip", socket_round_trip, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("grpc_empty_call", grpc_empty_call, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("broker_ping", broker_ping, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
