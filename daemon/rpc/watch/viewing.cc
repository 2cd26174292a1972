#include "daemon/rpc/watch/viewing.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/thread_guards.h"

namespace gpumem::rpc {

Viewer::Messages SampleMessages::of(const core::Caller& caller, bool whole) {
  Slices& bodies = whole ? whole_ : changes_;
  if (bodies.empty()) bodies = slices_of(whole ? sampler_.whole() : sample_.changes);
  v1::Sample head;
  head.set_number(sample_.number);
  head.set_whole(whole);
  const grpc::Slice first(head.SerializeAsString());
  Viewer::Messages messages;
  for (const grpc::Slice& body : bodies) {
    const std::array<grpc::Slice, 4> parts{first, body, tail_, lines_for(caller)};
    const bool is_last = messages.size() + 1 == bodies.size();
    messages.emplace_back(parts.data(), is_last ? parts.size() : 2);
  }
  return messages;
}

const grpc::Slice& SampleMessages::lines_for(const core::Caller& caller) {
  const auto [known, is_new] = lines_.try_emplace(caller.admin ? std::nullopt : std::optional(caller.tenant));
  if (!is_new) return known->second;
  std::string bytes;
  for (const TakenSample::Line& line : sample_.lines)
    if (may_follow(caller, line.tenant, sample_.parents)) bytes += line.bytes;
  return known->second = grpc::Slice(bytes);
}

SampleMessages::Slices SampleMessages::slices_of(const SampleTable::Messages& messages) {
  return {messages.begin(), messages.end()};
}

Viewing::Viewing(core::Executor& executor, ReadLoads read_loads) : sampler_(executor, std::move(read_loads)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { work(); });
}

Viewing::~Viewing() { stop(); }

void Viewing::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Viewing::add(std::shared_ptr<Viewer> viewer) {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) viewers_.push_back(std::exchange(viewer, nullptr));
  }
  if (viewer) return viewer->finish({Code::kUnavailable, "the broker is stopping"});
  wake_.notify_one();
}

void Viewing::remove(const Viewer& viewer) {
  const MutexLock lock(mutex_);
  std::erase_if(viewers_, [&](const auto& one) { return one.get() == &viewer; });
}

// Waits until a sample is due, and somebody is there to see it; nobody is told of it while it waits.
bool Viewing::await_turn(Viewers& viewers) {
  const MutexLock lock(mutex_);
  while (!stopping_ && (viewers_.empty() || Clock::now() < next_)) {
    if (viewers_.empty())
      wake_.wait(mutex_);
    else
      wake_.wait_until(mutex_, next_);
  }
  viewers = viewers_;
  return !stopping_;
}

void Viewing::work() {
  Viewers viewers;
  while (await_turn(viewers)) {
    next_ = Clock::now() + kPeriod;
    send(viewers);
    viewers.clear();
  }
  for (const auto& viewer : viewers) viewer->finish({Code::kUnavailable, "the broker is stopping"});
}

// False: the broker is stopping.
bool Viewing::rest(Clock::duration pause) {
  const auto end = Clock::now() + pause;
  const MutexLock lock(mutex_);
  while (!stopping_ && Clock::now() < end) wake_.wait_until(mutex_, end);
  return !stopping_;
}

void Viewing::send(const Viewers& viewers) {
  ViewSampler::Connections connections;
  connections.reserve(viewers.size());
  for (const auto& viewer : viewers) connections.push_back(viewer->connection());
  const auto sample = sampler_.take(connections);
  if (!sample) return;
  SampleMessages messages(*sample, sampler_);
  // One after the other: many viewers that draw at the same moment would take the processors from everybody.
  const Clock::duration pause =
      std::min<Clock::duration>(kMostPause, Clock::duration(kPeriod) * 4 / 5 / viewers.size());
  for (std::size_t i = 0; i < viewers.size() && (i == 0 || rest(pause)); ++i) {
    const auto& caller = sample->callers[i];
    if (caller)
      viewers[i]->send(sample->number, [&](bool whole) { return messages.of(*caller, whole); });
    else
      viewers[i]->finish({Code::kUnauthenticated, "the connection of this call has ended"});
  }
}

}  // namespace gpumem::rpc
