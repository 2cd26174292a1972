#include "daemon/host/loop.h"

#include <boost/asio/post.hpp>
#include <variant>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "daemon/host/token.h"
#include "proto/lane.h"

namespace gpumem::host {
namespace {

// A session's own calls show in its page at once; what others do, this late at most.
constexpr auto kBroadcastDelay = std::chrono::milliseconds(10);

core::TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

Result<std::unique_ptr<Loop>> Loop::create(Options options) {
  const cuda::Driver& driver = *options.driver;
  std::unique_ptr<Loop> loop(new Loop(std::move(options)));
  auto extents = Extents::create(
      loop->io_, driver, loop->broker_.policy().devices, [self = loop.get()](const core::JobResult& result) {
        self->run([&](core::Broker& broker, core::TimePoint at) { broker.job_done(result, at); });
      });
  if (!extents) return extents.error();
  loop->extents_ = std::move(*extents);
  return loop;
}

Loop::Loop(Options options)
    : driver_folder_(std::move(options.driver_folder)),
      work_guard_(boost::asio::make_work_guard(io_)),
      broker_(std::move(options.policy)),
      listener_(io_, std::move(options.lane_socket), *this),
      deadline_(io_),
      broadcast_(io_) {}

Loop::~Loop() {
  if (thread_.joinable()) {
    run_and_wait([this](core::Broker&, core::TimePoint) {
      listener_.stop();
      for (auto& [id, client] : clients_) end_requests_of(id);
    });
    io_.stop();
    thread_.join();
  }
  extents_.reset();  // joins the workers, which post to io_
}

void Loop::start() {
  std::promise<void> settled;
  settled_ = &settled;
  thread_ = std::thread([this] { io_.run(); });
  post([](core::Broker& broker, core::TimePoint at) { broker.tick(at); });
  settled.get_future().wait();
}

void Loop::listen() {
  boost::asio::post(io_, [this] { listener_.start(); });
}

void Loop::drain() {
  run_and_wait([this](core::Broker& broker, core::TimePoint) {
    listener_.stop();
    broker.drain();
  });
}

std::size_t Loop::session_count() {
  std::size_t count = 0;
  run_and_wait([&](core::Broker& broker, core::TimePoint) { count = broker.sessions().size(); });
  return count;
}

Result<void> Loop::apply(core::Policy policy) {
  Result<void> applied;
  run_and_wait(
      [&](core::Broker& broker, core::TimePoint at) { applied = broker.apply(std::move(policy), at); });
  return applied;
}

void Loop::post(Work work) {
  boost::asio::post(io_, [this, work = std::move(work)] { run(work); });
}

void Loop::run_and_wait(const Work& work) {
  std::promise<void> done;
  boost::asio::post(io_, [&] {
    run(work);
    done.set_value();
  });
  done.get_future().wait();
}

void Loop::run(const Work& work) {
  if (running_) return work(broker_, now());
  running_ = true;
  work(broker_, now());
  do_effects();
  running_ = false;
  for (const SessionId session : broker_.take_touched()) publish(session);
  publish_soon();
  arm_deadline();
  if (settled_ != nullptr && broker_.settled()) std::exchange(settled_, nullptr)->set_value();
}

// Doing an effect may cause further ones: a lane that breaks while it is sent an offer ends its session.
void Loop::do_effects() {
  for (auto effects = broker_.take_effects(); !effects.empty(); effects = broker_.take_effects()) {
    for (core::Effect& effect : effects) {
      std::visit([this](auto& one) { do_effect(one); }, effect);
    }
  }
}

void Loop::do_effect(core::RunJob& effect) { extents_->run(std::move(effect.job)); }

void Loop::do_effect(core::SendOffer& effect) {
  const auto client = clients_.find(effect.session);
  if (client == clients_.end()) return;
  const auto& leases = effect.grant.leases;
  for (std::size_t first = 0; first < leases.size(); first += kLaneDescriptors) {
    v1::ToClient message;
    v1::Offer& offer = *message.mutable_offer();
    offer.set_grant(effect.grant.id.value);
    offer.set_slice(effect.slice.value);
    std::vector<int> descriptors;
    for (std::size_t i = first; i < leases.size() && i < first + kLaneDescriptors; ++i) {
      offer.add_leases(leases[i].lease.value);
      descriptors.push_back(extents_->descriptor(leases[i].extent.id));
    }
    client->second.lane->send(message, descriptors);
  }
}

void Loop::do_effect(core::AnswerGrow& effect) {
  auto pending = pending_.extract(effect.request);
  if (!pending.empty()) pending.mapped().answer(effect.answer);
}

void Loop::do_effect(core::ForgetSession& effect) {
  auto client = clients_.extract(effect.session);
  if (client.empty()) return;
  tokens_.erase(client.mapped().token);
  client.mapped().lane->forget();
}

RequestId Loop::grow(SessionId session, SliceId slice, Bytes bytes, core::Duration wait, GrowAnswer answer) {
  const RequestId id = request_ids_.next();
  pending_.emplace(id, Pending{session, std::move(answer)});
  run([&](core::Broker& broker, core::TimePoint at) { broker.grow(id, session, slice, bytes, wait, at); });
  return id;
}

void Loop::cancel(RequestId request) {
  run([&](core::Broker& broker, core::TimePoint at) { broker.cancel(request, at); });
  auto pending = pending_.extract(request);
  if (!pending.empty())
    pending.mapped().answer(core::GrowFailure{{Code::kCancelled, "the request was withdrawn"}, {}});
}

void Loop::end_requests_of(SessionId session) {
  std::vector<GrowAnswer> answers;
  std::erase_if(pending_, [&](auto& entry) {
    if (entry.second.session != session) return false;
    answers.push_back(std::move(entry.second.answer));
    return true;
  });
  for (const GrowAnswer& answer : answers)
    answer(core::GrowFailure{{Code::kCancelled, "the session has ended"}, {}});
}

std::optional<SessionId> Loop::session_of(std::string_view token) const {
  const auto found = tokens_.find(std::string(token));
  if (found == tokens_.end()) return std::nullopt;
  return found->second;
}

std::optional<ClientFigures> Loop::client_figures(SessionId session, core::DeviceIndex device,
                                                  Bytes charged) const {
  const auto client = clients_.find(session);
  if (client == clients_.end()) return std::nullopt;
  return read_figures(client->second.pages.client_page(), device, charged.count);
}

void Loop::hello(const std::shared_ptr<Lane>& lane, const v1::Hello& hello) {
  run([&](core::Broker&, core::TimePoint) {
    if (auto session = open_session(lane, hello); !session) lane->refuse(session.error());
  });
}

Result<SessionId> Loop::open_session(const std::shared_ptr<Lane>& lane, const v1::Hello& hello) {
  if (hello.protocol() != kLaneProtocol) {
    return Error{Code::kFailedPrecondition, "the client speaks version " + std::to_string(hello.protocol()) +
                                                " of the lane, this broker speaks " +
                                                std::to_string(kLaneProtocol)};
  }
  if (hello.label().size() > kLabelBytes || !is_printable(hello.label())) {
    return Error{Code::kInvalidArgument,
                 "the label is longer than " + std::to_string(kLabelBytes) + " bytes or not printable"};
  }
  auto pages = SharedPages::create();
  if (!pages) return pages.error();
  auto session = broker_.open_session(lane->peer(), hello.label(), now());
  if (!session) return session.error();
  auto descriptors = pages->take_descriptors();
  const auto [client, added] = clients_.emplace(*session, Client{lane, std::move(*pages), make_token()});
  GPUMEM_CHECK(added, "session ids are new");
  tokens_.emplace(client->second.token, *session);
  publish(*session);

  v1::Welcome welcome;
  welcome.set_session(session->value);
  welcome.set_token(client->second.token);
  welcome.set_tenant(broker_.tenant_name(*session));
  welcome.set_driver_folder(driver_folder_);
  for (const core::DevicePolicy& device : broker_.policy().devices) welcome.add_devices(device.uuid);
  lane->welcome(*session, welcome, std::array{descriptors[0].get(), descriptors[1].get()});
  return *session;
}

void Loop::accepted(Lane& lane, GrantId grant) {
  run([&](core::Broker& broker, core::TimePoint) {
    // Calls do not wait for the lane: a Return may overtake the Accept of what it gives back. Then nothing is
    // offered any more, and nothing is lost; a made-up grant changes as little.
    if (auto accepted = broker.accept(lane.session(), grant); !accepted) {
      spdlog::debug("session {}: {}", lane.session().value, accepted.error().message);
    }
  });
}

void Loop::closed(const std::shared_ptr<Lane>& lane, bool goodbye) {
  if (!lane->session()) return lane->forget();  // nothing is charged to its process: no need to see it end
  const auto farewell = goodbye                    ? core::Farewell::kReleased
                        : lane->process_may_live() ? core::Farewell::kLost
                                                   : core::Farewell::kExited;
  run([&](core::Broker& broker, core::TimePoint at) {
    if (const auto client = clients_.find(lane->session()); client != clients_.end()) {
      tokens_.erase(client->second.token);
    }
    end_requests_of(lane->session());
    broker.session_ended(lane->session(), farewell, at);
  });
}

void Loop::process_exited(const std::shared_ptr<Lane>& lane) {
  if (!lane->session()) return;
  run([&](core::Broker& broker, core::TimePoint at) { broker.exited(lane->session(), at); });
}

void Loop::publish(SessionId session) {
  const auto client = clients_.find(session);
  if (client != clients_.end() && broker_.knows(session))
    client->second.pages.publish(broker_.figures(session));
}

void Loop::publish_soon() {
  // Most calls change nothing, and with many sessions the pages are the largest part of the loop's work.
  if (broadcast_armed_ || broadcast_revision_ == broker_.figures_revision()) return;
  broadcast_armed_ = true;
  broadcast_.expires_after(kBroadcastDelay);
  broadcast_.async_wait([this](const boost::system::error_code& error) {
    broadcast_armed_ = false;
    if (error) return;
    broadcast_revision_ = broker_.figures_revision();
    for (const auto& [session, client] : clients_) publish(session);
  });
}

void Loop::arm_deadline() {
  const auto next = broker_.next_deadline();
  if (!next) {
    deadline_.cancel();
    return;
  }
  if (deadline_.expiry() == *next) return;
  deadline_.expires_at(*next);
  deadline_.async_wait([this](const boost::system::error_code& error) {
    if (!error) run([](core::Broker& broker, core::TimePoint at) { broker.tick(at); });
  });
}

}  // namespace gpumem::host
