#include "daemon/host/state/event_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/log.h"
#include "base/system/files.h"
#include "base/text/time_format.h"

namespace gpumem::host {
namespace {

using Json = nlohmann::ordered_json;
using core::Event;
using core::LoggedEvent;

// The thread wakes ten times a second at most.
constexpr auto kPause = std::chrono::milliseconds(100);
constexpr std::size_t kPiece = std::size_t{1} << 16;

// As JSON has it, with quotes.
std::string quoted(const std::string& text) {
  const auto is_plain = [](char byte) { return byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\'; };
  if (std::ranges::all_of(text, is_plain)) return '"' + text + '"';
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Written field by field: an object of the library in between would take ten times as long, and every growth
// is an event.
std::string line_of(const LoggedEvent& logged, const std::vector<std::string>& devices) {
  const Event& event = logged.event;
  const auto within =
      event.deadline == core::TimePoint{} ? core::Duration::zero() : event.deadline - event.at;
  std::string line = fmt::format(
      R"({{"time":"{}","kind":"{}","tenant":{},"session":{},"job":{},"device":{},"bytes":{},"request":{},)"
      R"("waited_ms":{},"within_ms":{},"pid":{},"words":{})",
      to_rfc3339(logged.time, Precision::kMicroseconds), core::name_of(event.kind), quoted(event.tenant),
      event.session.value, event.job.value, quoted(event.device ? devices.at(*event.device) : ""),
      event.bytes.count, event.request.value, core::to_milliseconds(event.waited),
      core::to_milliseconds(within), event.pid, quoted(event.words));
  if (event.uid) line += fmt::format(R"(,"uid":{})", *event.uid);
  if (const auto& closing = event.closing) {
    line += fmt::format(R"(,"closing":{{"lasted_ms":{},"name":{},"charged":{},"peak":{},"denied":{}}})",
                        core::to_milliseconds(closing->lasted), quoted(closing->name), closing->charged,
                        closing->peak.count, closing->denied);
  }
  return line + "}\n";
}

std::optional<Event::Kind> kind_of(const std::string& name) {
  for (std::size_t i = 0; i < core::kEventKinds; ++i)
    if (core::name_of(static_cast<Event::Kind>(i)) == name) return static_cast<Event::Kind>(i);
  return std::nullopt;
}

core::Duration milliseconds_in(const Json& json, const char* key) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  return std::chrono::milliseconds(std::min(json.at(key).get<std::uint64_t>(), kMost));
}

// Nothing: damaged, or another version has written it.
std::optional<LoggedEvent> event_of(const std::string& line, const std::vector<std::string>& devices) try {
  const Json json = Json::parse(line);
  const auto time = parse_rfc3339(json.at("time").get<std::string>());
  const auto kind = kind_of(json.at("kind").get<std::string>());
  if (!time || !kind) return std::nullopt;
  LoggedEvent logged{0, *time, {}};
  Event& event = logged.event;
  event.kind = *kind;
  event.tenant = json.at("tenant").get<std::string>();
  event.session = SessionId{json.at("session").get<std::uint64_t>()};
  event.job = core::CommandJobId{json.at("job").get<std::uint64_t>()};
  const auto device = std::ranges::find(devices, json.at("device").get<std::string>());
  if (device != devices.end()) event.device = static_cast<core::DeviceIndex>(device - devices.begin());
  event.bytes = Bytes{json.at("bytes").get<std::uint64_t>()};
  event.request = RequestId{json.at("request").get<std::uint64_t>()};
  event.waited = milliseconds_in(json, "waited_ms");
  event.deadline = event.at + milliseconds_in(json, "within_ms");
  event.pid = json.at("pid").get<std::int64_t>();
  event.words = json.at("words").get<std::string>();
  if (json.contains("uid")) event.uid = json.at("uid").get<std::uint32_t>();
  if (json.contains("closing")) {
    const Json& closing = json.at("closing");
    event.closing = std::make_shared<const core::Closing>(
        core::Closing{milliseconds_in(closing, "lasted_ms"), closing.at("name").get<std::string>(),
                      closing.at("charged").get<double>(), Bytes{closing.at("peak").get<std::uint64_t>()},
                      closing.at("denied").get<std::uint64_t>()});
  }
  return logged;
} catch (const Json::exception&) {
  return std::nullopt;
}

std::size_t size_of(int file) {
  struct stat found {};
  return ::fstat(file, &found) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
}

// Visits the lines of the end of the file, which something else may have made longer.
template <class Visit>
void for_each_line(const std::filesystem::path& file, Visit visit) {
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!opened.valid()) return;
  const std::size_t size = size_of(opened.get());
  std::size_t at = size - std::min(size, EventHistory::kMostBytes + kPiece);
  std::string piece(kPiece, '\0'), line;
  for (ssize_t got = 0;
       (got = ::pread(opened.get(), piece.data(), piece.size(), static_cast<off_t>(at))) > 0;) {
    at += static_cast<std::size_t>(got);
    std::string_view rest(piece.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
         rest.remove_prefix(end + 1)) {
      line += rest.substr(0, end);
      visit(line);
      line.clear();
    }
    line += rest;
  }
  if (!line.empty()) visit(line);
}

// The most bytes that each of the owners may keep, so that all of them keep `most` together.
std::size_t level_of(std::vector<std::size_t> bytes, std::size_t most) {
  std::ranges::sort(bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t share = most / (bytes.size() - i);
    if (bytes[i] > share) return share;
    most -= bytes[i];
  }
  return EventHistory::kMostBytes;
}

// The tenant of a line, as JSON has it between quotes; in a line that has none, nobody. The line is not
// parsed: a file has some 20,000 of them.
std::string_view tenant_in(std::string_view line) {
  constexpr std::string_view kKey = R"("tenant":")";
  const std::size_t key = line.find(kKey);
  if (key == std::string_view::npos) return {};
  line.remove_prefix(key + kKey.size());
  std::size_t end = 0;
  while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
  return line.substr(0, end);
}

// Writes the lines of both files that the second one keeps: of each tenant the latest. A line without a
// tenant is kept as nobody's: another version may read it. The files are read twice, a piece at a time: they
// are large, and memory that a thread has once used stays the process's.
Result<void> write_shared_lines(int to, const std::array<std::filesystem::path, 2>& files) {
  std::map<std::string, std::size_t, std::less<>> owners;
  std::vector<std::uint32_t> owner_of;  // each line
  std::vector<std::size_t> bytes;       // of each owner
  for (const auto& file : files) {
    for_each_line(file, [&](const std::string& line) {
      const std::string_view tenant = tenant_in(line);
      auto owner = owners.find(tenant);
      if (owner == owners.end()) {
        owner = owners.emplace(tenant, bytes.size()).first;
        bytes.push_back(0);
      }
      bytes[owner->second] += line.size() + 1;
      owner_of.push_back(static_cast<std::uint32_t>(owner->second));
    });
  }
  const std::size_t level = level_of(bytes, EventHistory::kMostBytes);
  std::size_t number = 0;
  std::string lines;
  Result<void> written;
  for (const auto& file : files) {
    for_each_line(file, [&](const std::string& line) {
      if (number == owner_of.size() || !written) return;
      std::size_t& left = bytes[owner_of[number++]];
      const bool is_kept = left <= level;
      left -= std::min(left, is_kept ? 0 : line.size() + 1);
      if (!is_kept) return;
      lines += line + "\n";
      if (lines.size() < kPiece) return;
      written = write_all(to, lines);
      lines.clear();
    });
  }
  return written ? write_all(to, lines) : written;
}

}  // namespace

EventHistory::EventHistory(const std::filesystem::path& folder, std::vector<std::string> devices)
    : file_(folder / "events.log"), older_file_(folder / "events.log.1"), devices_(std::move(devices)) {}

Result<std::unique_ptr<EventHistory>> EventHistory::open(const std::filesystem::path& folder,
                                                         std::vector<std::string> devices) {
  std::unique_ptr<EventHistory> history(new EventHistory(folder, std::move(devices)));
  if (auto opened = history->open_file(); !opened) return opened.error();
  history->thread_ = std::thread([one = history.get()] { one->write_down(); });
  return history;
}

EventHistory::~EventHistory() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// A broker that was killed while it wrote may have left a part of a line.
Result<void> EventHistory::open_file() {
  opened_.reset(::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!opened_.valid()) return errno_error(errno, "cannot open " + file_.string());
  size_ = size_of(opened_.get());
  char last = '\n';
  if (size_ != 0 && ::pread(opened_.get(), &last, 1, static_cast<off_t>(size_ - 1)) == 1 && last != '\n')
    return write_lines("\n");
  return {};
}

EventHistory::Events EventHistory::read(core::WallTime now) const {
  Events events;
  std::size_t unreadable = 0;
  const auto take = [&](const std::string& line) {
    auto event = event_of(line, devices_);
    if (!event) ++unreadable;
    if (!event || event->time < now - kLife) return;
    event->sequence = events.size() + 1;
    events.push_back(std::make_shared<const LoggedEvent>(std::move(*event)));
  };
  for (const auto& file : {older_file_, file_}) for_each_line(file, take);
  if (unreadable != 0)
    spdlog::warn("{}: {} lines cannot be read and are left out of the events", file_.string(), unreadable);
  return events;
}

void EventHistory::add(const Events& events) {
  const MutexLock lock(mutex_);
  const bool is_asleep = unwritten_.empty();
  for (const auto& event : events) unwritten_.push(event->event.tenant, 1, event);
  if (is_asleep) changed_.notify_all();
}

void EventHistory::write_down() {
  bool is_failing = false;
  for (;;) {
    Unwritten events(kMostUnwritten);
    {
      const MutexLock lock(mutex_);
      while (unwritten_.empty() && !closed_) changed_.wait(mutex_);
      const auto pause_end = std::chrono::steady_clock::now() + kPause;
      while (!closed_ && std::chrono::steady_clock::now() < pause_end) changed_.wait_until(mutex_, pause_end);
      std::swap(events, unwritten_);
    }
    if (events.empty()) return;
    const auto written = write(events);
    if (!written && !is_failing)
      spdlog::warn("events are not kept for the next broker, until this is mended: {}",
                   written.error().message);
    is_failing = !written;
  }
}

Result<void> EventHistory::write(const Unwritten& events) {
  std::string lines;
  for (const auto& [number, entry] : events.entries()) {
    lines += line_of(*entry.item, devices_);
    if (lines.size() < kPiece) continue;
    if (auto written = write_lines(lines); !written) return written;
    lines.clear();
  }
  return lines.empty() ? Result<void>() : write_lines(lines);
}

// A line that is written in part is taken back.
Result<void> EventHistory::write_lines(const std::string& lines) {
  if (size_ >= kMostBytes)
    if (auto begun = begin_next_file(); !begun) return begun.error();
  const auto written = write_all(opened_.get(), lines);
  if (written) {
    size_ += lines.size();
    return {};
  }
  if (::ftruncate(opened_.get(), static_cast<off_t>(size_)) != 0) size_ = size_of(opened_.get());
  return written.error().in(file_.string());
}

Result<void> EventHistory::begin_next_file() {
  const std::filesystem::path next = older_file_.string() + ".new";
  UniqueFd made(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made.valid()) return errno_error(errno, "cannot make " + next.string());
  auto written = write_shared_lines(made.get(), {older_file_, file_});
  if (written && ::rename(next.c_str(), older_file_.c_str()) != 0)
    written = errno_error(errno, "cannot rename " + next.string());
  if (!written) {
    ::unlink(next.c_str());
    return written.error().in(next.string());
  }
  if (::ftruncate(opened_.get(), 0) != 0) return errno_error(errno, "cannot truncate " + file_.string());
  size_ = 0;
  return {};
}

}  // namespace gpumem::host
