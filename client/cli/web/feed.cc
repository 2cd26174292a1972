#include "client/cli/web/feed.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/cli/views/text.h"
#include "client/cli/web/sample_json.h"

namespace gpumem::cli::web {
namespace {

constexpr std::chrono::hours kBefore{1};  // a page shows the events of this time

top::Moment moment() { return {top::Picture::Clock::now(), std::chrono::system_clock::now()}; }

http::Text message_text(const char* kind, const Json& message) {
  return std::make_shared<const std::string>(
      std::string("event: ") + kind +
      "\ndata: " + message.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n\n");
}

Json problem_json(const std::string& problem) { return {{"words", printable(problem)}}; }

}  // namespace

Feed::Feed(std::filesystem::path runtime_folder, Json hello)
    : runtime_folder_(std::move(runtime_folder)),
      hello_(std::move(hello)),
      told_(to_rfc3339(std::chrono::system_clock::now() - kBefore, Precision::kMicroseconds)),
      samples_([this](const std::stop_token& stop) { follow_samples(stop); }),
      events_thread_([this](const std::stop_token& stop) { follow_events(stop); }) {}

// A page that is asked for has its place from then on, though its stream comes later.
std::shared_ptr<void> Feed::take_place() {
  const MutexLock lock(mutex_);
  forget_closed();
  return places_.use_count() <= static_cast<long>(kMostPages) ? places_ : nullptr;
}

void Feed::add(std::shared_ptr<void> place, std::shared_ptr<http::Stream> page) {
  const MutexLock lock(mutex_);
  const std::vector<std::string> devices = picture_.device_uuids();
  Json hello = hello_;
  hello["timeline"] = timeline_.json();
  hello["events"] = Json::array();
  for (auto event = events_.cbegin(); event != first_new(); ++event)  // new ones come with the next sample
    hello["events"].push_back(event_json(*event, devices));
  page->send(message_text("hello", hello));
  if (!problem_.empty())
    page->send(message_text("problem", problem_json(problem_)));
  else if (!picture_.is_empty())
    page->send(message_text("sample", sample_json(picture_, moment())));
  pages_.push_back({std::move(place), std::move(page)});
}

void Feed::follow_samples(const std::stop_token& stop) {
  const auto watch = [&](const Monitor& monitor) {
    return monitor.watch([this](v1::Sample sample) { return take(std::move(sample)), true; }, stop);
  };
  keep_watching(runtime_folder_, stop, watch, [this](const Result<void>& watched) {
    note(watched ? "the broker has ended the samples" : watched.error().message);
    return true;
  });
}

void Feed::follow_events(const std::stop_token& stop) {
  const auto watch = [&](const Monitor& monitor) {
    v1::WatchEventsRequest request;
    request.set_follow(true);
    {
      const MutexLock lock(mutex_);
      request.set_since(told_.begin());
    }
    return monitor.watch_events(
        request, [this](const v1::Event& event) { return take(event), true; }, stop);
  };
  keep_watching(runtime_folder_, stop, watch, [](const Result<void>&) { return true; });
}

void Feed::take(v1::Sample sample) {
  const MutexLock lock(mutex_);
  const top::Moment now = moment();
  picture_.apply(sample, now.steady);
  timeline_.add(point_of(picture_, now));
  problem_.clear();
  forget_closed();
  if (!pages_.empty()) {
    Json message = sample_json(picture_, now);
    message["events"] = take_news();
    send("sample", message);
  }
  news_ = 0;
}

void Feed::take(const v1::Event& event) {
  const MutexLock lock(mutex_);
  if (!told_.is_new(event)) return;
  events_.push_back(event);
  if (events_.size() > kMostEvents) events_.pop_front();
  news_ = std::min(news_ + 1, events_.size());
}

Json Feed::take_news() {
  const std::vector<std::string> devices = picture_.device_uuids();
  Json list = Json::array();
  for (auto event = first_new(); event != events_.cend(); ++event)
    list.push_back(event_json(*event, devices));
  return list;
}

void Feed::note(const std::string& problem) {
  const MutexLock lock(mutex_);
  problem_ = problem;
  send("problem", problem_json(problem));
}

void Feed::send(const char* kind, const Json& message) {
  const http::Text text = message_text(kind, message);
  for (const Page& page : pages_) page.stream->send(text);
}

void Feed::forget_closed() {
  std::erase_if(pages_, [](const Page& page) { return page.stream->is_over(); });
}

}  // namespace gpumem::cli::web
