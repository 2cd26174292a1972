#include "client/cli/regions/publish.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "client/cli/interrupt.h"
#include "client/cli/listings.h"
#include "client/cli/monitor.h"
#include "client/cli/regions/staging.h"
#include "client/cli/run/lent_devices.h"
#include "client/cli/table.h"
#include "client/cli/time_text.h"
#include "client/cli/views.h"
#include "client/region_name.h"
#include "cuda/memory.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

using Clock = std::chrono::steady_clock;

// How often it looks whether the broker still knows its session.
constexpr std::chrono::seconds kLook{5};

// Before anything is loaded. The broker decides.
Result<void> check_region_name(const std::string& name) {
  constexpr std::size_t kMost = 128;
  if (!name.empty() && name.size() <= kMost && printable(name) == name) return {};
  return Error{Code::kInvalidArgument,
               "a region's name has 1 to " + std::to_string(kMost) + " printable bytes; give one by --name"};
}

PublishOptions terms_of(const PublishFileOptions& options) {
  PublishOptions terms;
  terms.life = options.life;
  terms.keep = options.keep;
  terms.linger = options.linger;
  if (options.sharing == "group") terms.sharing = Sharing::kGroup;
  if (options.sharing == "public") terms.sharing = Sharing::kPublic;
  if (options.sharing == "private" || terms.sharing != Sharing::kPrivate) return terms;
  terms.sharing = Sharing::kNamed;
  std::istringstream tenants(options.sharing);
  for (std::string tenant; std::getline(tenants, tenant, ',');) terms.readers.push_back(tenant);
  return terms;
}

Error interrupted() { return {Code::kCancelled, "interrupted: nothing is published"}; }

/// A file on its way into a region.
class FilePublication {
 public:
  explicit FilePublication(const PublishFileOptions& options)
      : options_(options), name_(options.name.empty() ? options.file.filename().string() : options.name) {}

  Result<void> publish();
  /// Keeps it until it is interrupted, its life is over, or the broker has ended the session.
  Result<void> hold();

 private:
  Result<void> open_file();
  Result<void> open_slice();
  Result<void> load();
  void tell() const;

  const PublishFileOptions& options_;
  const std::string name_;
  const Interrupt interrupt_;  // before there are other threads
  std::ifstream file_;
  std::uint64_t size_ = 0;
  std::optional<Session> session_;
  std::optional<Slice> slice_;
  std::uint64_t version_ = 0;
  Clock::time_point end_ = Clock::time_point::max();
};

Result<void> FilePublication::open_file() {
  const std::string path = options_.file.string();
  std::error_code failed;
  const auto kind = std::filesystem::status(options_.file, failed);
  if (failed) return errno_error(failed.value(), "cannot read " + path);
  if (!std::filesystem::is_regular_file(kind))
    return Error{Code::kInvalidArgument, path + " is not a regular file"};
  size_ = std::filesystem::file_size(options_.file, failed);
  file_.open(options_.file, std::ios::binary);
  if (failed || !file_) return errno_error(failed ? failed.value() : errno, "cannot read " + path);
  if (size_ == 0) return Error{Code::kInvalidArgument, path + " is empty: a region has at least one byte"};
  return {};
}

Result<void> FilePublication::open_slice() {
  std::string device;
  if (!options_.device.empty()) {
    auto monitor = Monitor::connect(options_.runtime_folder);
    if (!monitor) return monitor.error();
    const auto status = monitor->status();
    if (!status) return status.error();
    const auto found = find_device(*status, options_.device);
    if (!found) return found.error();
    device = *found;
  }
  // Labels are for everybody who lists sessions: they do not tell of a region.
  auto session = Session::connect({options_.runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  session_.emplace(std::move(*session));
  auto slice = session_->open_slice({.device = device});
  if (!slice) return slice.error();
  slice_.emplace(std::move(*slice));
  const auto grown = slice_->grow({size_}, {.wait = options_.wait, .least = {}, .stop = interrupt_.token()});
  if (grown) return {};
  if (interrupt_.happened()) return interrupted();
  return Error{grown.error().code, "cannot load " + options_.file.string() + " (" + size_text(size_) +
                                       "): " + grown.error().message};
}

Result<void> FilePublication::load() {
  auto driver = cuda::Driver::open(session_->driver_folder());
  if (!driver) return driver.error();
  const auto context = cuda::CurrentContext::enter(**driver, slice_->ordinal());
  if (!context) return context.error();
  Staging staging(**driver);
  for (std::uint64_t done = 0; done < size_;) {
    const std::size_t wanted = std::min<std::uint64_t>(Staging::kBytes, size_ - done);
    file_.read(staging.bytes().data(), static_cast<std::streamsize>(wanted));
    const auto count = static_cast<std::size_t>(file_.gcount());
    if (count == 0) {
      return Error{Code::kInternal, options_.file.string() + " ends at byte " + std::to_string(done) +
                                        " of " + std::to_string(size_) +
                                        ": it became shorter, or cannot be read"};
    }
    if (auto stored = staging.store(slice_->base() + done, count); !stored) return stored;
    done += count;
    if (interrupt_.happened()) return interrupted();
  }
  return staging.finish();
}

Result<void> FilePublication::publish() {
  if (auto named = check_region_name(name_); !named) return named;
  if (!options_.keep && options_.linger != options_.linger.zero())
    return Error{Code::kInvalidArgument, "--linger is of a region that is kept: give --keep, too"};
  if (auto right = client::check_publication(name_, terms_of(options_)); !right) return right;
  if (auto opened = open_file(); !opened) return opened;
  if (auto opened = open_slice(); !opened) return opened;
  slice_->set_in_use({size_});
  if (auto loaded = load(); !loaded) return loaded;
  auto published = slice_->publish(name_, {}, {size_}, terms_of(options_));
  if (!published) return published.error();
  version_ = *published;
  if (options_.life != options_.life.zero()) end_ = Clock::now() + options_.life;
  tell();
  return {};
}

void FilePublication::tell() const {
  if (options_.json) {
    std::cout << json_text({{"name", name_},
                            {"owner", session_->tenant()},
                            {"version", version_},
                            {"device", slice_->device()},
                            {"bytes", size_},
                            {"sharing", options_.sharing},
                            {"session", session_->id()}});
  } else {
    const std::string until =
        end_ == Clock::time_point::max() ? "" : " or " + span_text(options_.life) + " are over";
    const std::string left =
        options_.linger == options_.linger.zero()
            ? "; kept until it is removed (gpumem regions rm)"
            : "; kept for " + span_text(options_.linger) + " after the last process has left it";
    const std::string held = options_.keep ? left : "; kept until this program is interrupted" + until;
    std::cout << printable("published '" + name_ + "', version " + std::to_string(version_) + ": " +
                           size_text(size_) + " on " + short_uuid(slice_->device()) + ", sharing " +
                           options_.sharing + held)
              << "\n";
  }
  std::cout << std::flush;
}

// A broker that is gone may come back: the session goes on then.
Result<void> FilePublication::hold() {
  for (;;) {
    const auto now = Clock::now();
    if (now >= end_) return {};
    if (!interrupt_.wait(std::min<std::chrono::duration<double>>(kLook, end_ - now))) return {};
    auto known = session_->ping();
    if (!known && known.error().code != Code::kUnavailable) return known;
  }
}

}  // namespace

int publish_file(const PublishFileOptions& options) {
  FilePublication publication(options);
  if (auto published = publication.publish(); !published) return report(published.error());
  if (options.keep) return std::cout ? 0 : 1;
  const auto held = publication.hold();
  return held ? 0 : report(held.error());
}

}  // namespace gpumem::cli
